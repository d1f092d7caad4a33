// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the clients' signatures are HMAC-SHA1
	"encoding/base64"
	"hash"
	"slices"
	"strings"
	"sync"
)

// User is somebody with a name and a secret. The JSON form is the one in the log, the YAML form the one in files.
// Source: User.java.
type User struct {
	Password   string `json:"password"   yaml:"password"` // the secret that signatures are made with
	UserStatus string `json:"userStatus" yaml:"userStatus"`
	UserType   string `json:"userType"   yaml:"userType"`
	Username   string `json:"username"   yaml:"username"`
}

// Types and states of users. A super user may do everything.
const (
	Super    = "Super"
	Normal   = "Normal"
	Enabled  = "enable"
	Disabled = "disable"
)

// check brings a user into its form and refuses what cannot be.
func (u *User) check() error {
	if strings.TrimSpace(u.Username) == "" || len(u.Username) > 255 ||
		strings.ContainsAny(u.Username, "/, =\x00\r\n") {
		return refuse(
			"username can not be blank, hold a blank, slash, comma or equals sign, or be longer than 255 bytes",
		)
	}
	if strings.TrimSpace(u.Password) == "" {
		return refuse("password can not be blank")
	}
	if err := settle(&u.UserType, "userType", Normal, Super); err != nil {
		return err
	}
	return settle(&u.UserStatus, "userStatus", Enabled, Disabled)
}

// settle brings a word into the form that it has in a list, or sets the first one in place of none.
func settle(word *string, what string, known ...string) error {
	if *word == "" {
		*word = known[0]
	}
	at := indexFold(known, *word)
	if at < 0 {
		return refuse("%s is %q: there are %s", what, *word, strings.Join(known, " and "))
	}
	*word = known[at]
	return nil
}

// indexFold is where a word stands in a list, in any case of its letters; -1 when it is not there.
func indexFold(known []string, word string) int {
	return slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, word) })
}

// isSuper tells whether there is such a user and it may do everything, once it is enabled.
func (u *User) isSuper() bool { return u != nil && u.UserType == Super }

// governs tells whether the user can change users.
func (u *User) governs() bool { return u.isSuper() && u.UserStatus != Disabled }

// account is a user of a Book, ready to be checked.
type account struct {
	User

	custom, fallback []rule
	macs             sync.Pool // of hash.Hash, keyed with the secret
}

func newAccount(u User) *account {
	a := &account{User: u}
	a.macs.New = func() any { return hmac.New(sha1.New, []byte(u.Password)) }
	return a
}

// Sign returns the signature of a native request: base64 of the HMAC-SHA1 of parts after each other.
func Sign(secret string, parts ...[]byte) string {
	return base64.StdEncoding.EncodeToString(newAccount(User{Password: secret}).signature(parts...))
}

// signature is the HMAC-SHA1 of the parts after each other. Source: AclSigner.java.
func (a *account) signature(parts ...[]byte) []byte {
	mac, _ := a.macs.Get().(hash.Hash)
	mac.Reset()
	for _, part := range parts {
		_, _ = mac.Write(part) // never fails
	}
	sum := mac.Sum(make([]byte, 0, sha1.Size))
	a.macs.Put(mac)
	return sum
}
