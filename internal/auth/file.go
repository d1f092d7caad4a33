// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// file is what an authFile says: users and rules of the 5.x model (users, acls), or the accounts of a plain_acl.yml of
// RocketMQ 4, or both. Source: AclConfig.java, AuthMigrator.java.
type file struct {
	Users    []User     `yaml:"users"`
	ACLs     []ACL      `yaml:"acls"`
	White    []string   `yaml:"globalWhiteRemoteAddresses"`
	Accounts []account4 `yaml:"accounts"`

	trusted  []netip.Prefix
	modified time.Time
}

// account4 is a user of RocketMQ 4. Its whiteRemoteAddress, from where it needs no signature, is refused.
type account4 struct {
	AccessKey    string   `yaml:"accessKey"`
	SecretKey    string   `yaml:"secretKey"`
	White        string   `yaml:"whiteRemoteAddress"`
	Admin        bool     `yaml:"admin"`
	DefaultTopic string   `yaml:"defaultTopicPerm"`
	DefaultGroup string   `yaml:"defaultGroupPerm"`
	Topics       []string `yaml:"topicPerms"`
	Groups       []string `yaml:"groupPerms"`
}

// readFile reads and checks a file. Errors name the path and the place.
func readFile(path string) (*file, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("authFile: %w", err)
	}
	text, err := os.ReadFile(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("authFile: %w", err)
	}
	f := &file{modified: info.ModTime()}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err = decoder.Decode(f); err == nil {
		err = f.check()
	}
	if err != nil {
		return nil, fmt.Errorf("authFile %s: %w", path, err)
	}
	return f, nil
}

func (f *file) check() error {
	for _, text := range f.White {
		network, err := parseNetwork(text)
		if err != nil {
			return fmt.Errorf("globalWhiteRemoteAddresses: %q is no address, network (10.0.0.0/8) or 10.*", text)
		}
		f.trusted = append(f.trusted, network)
	}
	for i := range f.Accounts {
		a := &f.Accounts[i]
		if a.White != "" {
			return fmt.Errorf("account %s: whiteRemoteAddress lets anybody at that address be this user: take it out",
				a.AccessKey)
		}
		u := User{Username: a.AccessKey, Password: a.SecretKey}
		if a.Admin {
			u.UserType = Super
		}
		f.Users = append(f.Users, u)
		acl, err := a.acl()
		if err != nil {
			return fmt.Errorf("account %s: %w", a.AccessKey, err)
		}
		if len(acl.Policies) > 0 {
			f.ACLs = append(f.ACLs, acl)
		}
	}
	names := map[string]bool{}
	for i := range f.Users {
		u := &f.Users[i]
		if err := u.check(); err != nil {
			return fmt.Errorf("user %q: %w", u.Username, err)
		}
		if names[u.Username] {
			return fmt.Errorf("user %q stands there twice", u.Username)
		}
		names[u.Username] = true
	}
	for i := range f.ACLs {
		if err := f.ACLs[i].check(); err != nil {
			return fmt.Errorf("acl of %q: %w", f.ACLs[i].Subject, err)
		}
	}
	return nil
}

// acl is an account's permissions as rules.
func (a *account4) acl() (ACL, error) {
	acl := ACL{Subject: subjectPrefix + a.AccessKey}
	actions := map[string][]string{
		"PUB": {"Pub"}, "SUB": {"Sub"}, "PUB|SUB": {"Pub", "Sub"}, "SUB|PUB": {"Pub", "Sub"}, "DENY": {"All"},
	}
	add := func(policy, resource, perm string) error {
		perm = strings.TrimSpace(perm)
		e := Entry{Resource: resource, Decision: "Allow", Actions: actions[perm]}
		if perm == "DENY" {
			e.Decision = "Deny"
		}
		acl = acl.merged(&ACL{acl.Subject, []Policy{{policy, []Entry{e}}}})
		if e.Actions == nil {
			return fmt.Errorf("%s=%s: the permissions are PUB, SUB, PUB|SUB and DENY", resource, perm)
		}
		return nil
	}
	var faults []error
	for kind, list := range map[string][]string{"Topic:": a.Topics, "Group:": a.Groups} {
		for _, line := range list {
			name, perm, _ := strings.Cut(line, "=")
			faults = append(faults, add(Custom, kind+strings.TrimSpace(name), perm))
		}
	}
	for resource, perm := range map[string]string{"Topic:*": a.DefaultTopic, "Group:*": a.DefaultGroup} {
		if perm != "" {
			faults = append(faults, add(Default, resource, perm))
		}
	}
	return acl, errors.Join(faults...)
}

// Tick reads the file again when it has changed. A file that cannot be read leaves everything as it was.
func (t *Table) Tick(time.Time) {
	if t.cfg.File == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Stat(t.cfg.File)
	if err == nil && info.ModTime().Equal(t.mu.file.modified) {
		return
	}
	f, err := readFile(t.cfg.File)
	before := t.mu.file
	if err == nil {
		t.mu.file = *f
		if next := t.bookLocked(); (next.on || t.Book().on) && !anyGoverns(next.accounts) {
			err, t.mu.file = errors.New("it leaves no enabled super user"), before
		}
	}
	if err != nil {
		t.cfg.Logger.Warn("authFile is of no use: users stay as they were", "error", err)
		if info != nil {
			t.mu.file.modified = info.ModTime() // said once
		}
		return
	}
	t.rebuildLocked()
	t.cfg.Logger.Info("authFile read again", "users", len(f.Users), "acls", len(f.ACLs))
}

// parseNetwork reads an address, a network, or an address whose last numbers are *, as RocketMQ 4 writes them.
func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	numbers := strings.Split(text, ".")
	for len(numbers) > 0 && numbers[len(numbers)-1] == "*" {
		numbers = numbers[:len(numbers)-1]
	}
	if !strings.HasSuffix(text, "*") {
		network, err := netip.ParsePrefix(text)
		return network.Masked(), err
	}
	bits := 8 * len(numbers)
	for len(numbers) < 4 {
		numbers = append(numbers, "0")
	}
	addr, err := netip.ParseAddr(strings.Join(numbers, "."))
	return netip.PrefixFrom(addr, bits), err
}
