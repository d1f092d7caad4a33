// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Book is all users and rules at one moment. It is never changed and safe for concurrent use.
type Book struct {
	on, rights bool
	accounts   map[string]*account
	acls       map[string]ACL // by subject
	trusted    []netip.Prefix
}

// On tells whether requests need credentials.
func (b *Book) On() bool { return b.on }

// Trusts tells whether an address needs none: globalWhiteRemoteAddresses of RocketMQ 4.
func (b *Book) Trusts(from netip.Addr) bool { return contains(b.trusted, from) }

// find returns the account of a user who may come in.
func (b *Book) find(user string) (*account, error) {
	if user == "" {
		return nil, unknown("username cannot be null: this server asks for credentials, and the request has none")
	}
	a := b.accounts[user]
	switch {
	case a == nil:
		return nil, unknown("User:%s is not found.", user)
	case a.UserStatus == Disabled:
		return nil, unknown("User:%s is disabled.", user)
	}
	return a, nil
}

// Signed checks the signature of a native request: base64 of the HMAC-SHA1 of parts after each other.
// Source: DefaultAuthenticationHandler.java.
func (b *Book) Signed(user, signature string, parts ...[]byte) error {
	a, err := b.find(user)
	if err != nil {
		return err
	}
	var want [28]byte
	base64.StdEncoding.Encode(want[:], a.signature(parts...))
	if subtle.ConstantTimeCompare(want[:], []byte(signature)) == 0 {
		return wrong(user)
	}
	return nil
}

func wrong(user string) error {
	return unknown(
		"check signature failed. The secret of User:%s is another one, or the request was changed on its way",
		user,
	)
}

// Authorized checks an Authorization header and returns the user.
//
//	MQv2-HMAC-SHA1 Credential=user/…, SignedHeaders=x-mq-date-time, Signature=hex   date signed with HMAC-SHA1
//	Basic base64(user:secret)
//	Bearer user.expires.signature   expires: unix seconds; signature: hex of HMAC-SHA256(secret, "user.expires")
//
// date is the text of x-mq-date-time, whose form differs between clients: it is not read.
// Source: DefaultAuthenticationContextBuilder.java.
func (b *Book) Authorized(header, date string, now time.Time) (string, error) {
	scheme, rest, _ := strings.Cut(header, " ")
	switch rest = strings.TrimSpace(rest); {
	case header == "":
		_, err := b.find("")
		return "", err
	case strings.EqualFold(scheme, "Basic"):
		return b.basic(rest)
	case strings.EqualFold(scheme, "Bearer"):
		return b.bearer(rest, now)
	case scheme == "MQv2-HMAC-SHA1":
		return b.dated(rest, date)
	default:
		return "", unknown("authentication header is incorrect: %q is none of MQv2-HMAC-SHA1, Basic and Bearer",
			scheme)
	}
}

func (b *Book) dated(text, date string) (string, error) {
	var user, signature string
	for part := range strings.SplitSeq(text, ",") {
		switch key, value, _ := strings.Cut(strings.TrimSpace(part), "="); key {
		case "Credential":
			user, _, _ = strings.Cut(value, "/")
		case "Signature":
			signature = value
		}
	}
	a, err := b.find(user)
	if err != nil {
		return "", err
	}
	if date == "" {
		return "", unknown("datetime is null: x-mq-date-time is what is signed")
	}
	given, err := hex.DecodeString(signature)
	if err != nil || !hmac.Equal(given, a.signature([]byte(date))) {
		return "", wrong(user)
	}
	return user, nil
}

func (b *Book) basic(text string) (string, error) {
	pair, err := base64.StdEncoding.DecodeString(text)
	user, secret, ok := strings.Cut(string(pair), ":")
	if err != nil || !ok {
		return "", unknown("authentication header is incorrect: Basic wants base64 of user:secret")
	}
	a, err := b.find(user)
	if err == nil && subtle.ConstantTimeCompare([]byte(a.Password), []byte(secret)) == 0 {
		err = unknown("the secret of User:%s is another one", user)
	}
	return user, err
}

func (b *Book) bearer(token string, now time.Time) (string, error) {
	said, signature, _ := cutLast(token)
	user, expires, ok := cutLast(said)
	until, err := strconv.ParseInt(expires, 10, 64)
	if err != nil || !ok {
		return "", unknown("authentication header is incorrect: Bearer wants user.expires.signature")
	}
	a, err := b.find(user)
	if err != nil {
		return "", err
	}
	given, err := hex.DecodeString(signature)
	mac := hmac.New(sha256.New, []byte(a.Password))
	_, _ = mac.Write([]byte(said)) // never fails
	switch {
	case err != nil || !hmac.Equal(given, mac.Sum(nil)):
		return "", wrong(user)
	case now.Unix() >= until:
		return "", unknown("the token of User:%s expired at %s", user, time.Unix(until, 0).UTC().Format(time.RFC3339))
	}
	return user, nil
}

func cutLast(text string) (before, after string, ok bool) {
	at := strings.LastIndexByte(text, '.')
	if at < 0 {
		return "", text, false
	}
	return text[:at], text[at+1:], true
}

// Governs tells whether a user may do everything, which nobody needs while the book is not on. Errors:
// *CredentialError.
func (b *Book) Governs(user string) (bool, error) {
	if !b.on {
		return true, nil
	}
	a, err := b.find(user)
	return err == nil && a.governs(), err
}

// May tells whether a user may do any of the actions with a resource. Errors: *CredentialError, *RightError.
func (b *Book) May(user string, on Resource, any Actions, from netip.Addr) error {
	a, err := b.find(user)
	if err != nil || !b.rights || any == 0 || a.governs() {
		return err
	}
	reason := "no matched policies."
	for left := any; left != 0; left &= left - 1 {
		action := left & -left
		best := decide(a.custom, on, action, from)
		if best == nil {
			best = decide(a.fallback, on, action, from)
		}
		if best != nil && !best.deny {
			return nil
		}
		if best != nil {
			reason = "the decision is deny."
		}
	}
	return &RightError{"User:" + user + " has no permission to access " + on.String() + " from " + from.String() +
		", " + reason + " It needs " + strings.Join(any.names(), " or ") +
		"; an administrator grants that with roquet acl set, mqadmin createAcl or PUT /v1/acls"}
}
