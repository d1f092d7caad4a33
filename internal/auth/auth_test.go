// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var here = netip.MustParseAddr("127.0.0.1")

// entries makes a policy of lines "Allow Topic:x Pub,Sub [network]".
func entries(t *testing.T, lines ...string) []Entry {
	t.Helper()
	var all []Entry
	for _, line := range lines {
		words := strings.Fields(line)
		e := Entry{Decision: words[0], Resource: words[1], Actions: strings.Split(words[2], ",")}
		e.SourceIPs = append(e.SourceIPs, words[3:]...)
		all = append(all, e)
	}
	return all
}

// table is a table without a journal of user u with the given policies and a super user.
func table(t *testing.T, policies ...Policy) *Table {
	t.Helper()
	tab, err := NewTable(Config{
		Users:  []User{{Username: "root", Password: "r"}, {Username: "u", Password: "secret"}},
		Logger: slog.New(slog.DiscardHandler),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	acl := ACL{Subject: "User:u", Policies: policies}
	if err := acl.check(); err != nil {
		t.Fatal(err)
	}
	tab.mu.users["u"] = User{Username: "u", Password: "secret", UserType: Normal, UserStatus: Enabled}
	tab.mu.acls[acl.Subject] = acl
	tab.rebuildLocked()
	return tab
}

// C139: among rules that match, a literal name decides before a prefix, a longer prefix before a shorter one, a kind
// before all kinds, a denial before an allowance of the same resource, and Custom before Default.
func TestC139Precedence(t *testing.T) {
	t.Parallel()
	custom := entries(
		t,
		"Allow Topic:test* Pub",
		"Deny Topic:test-1 Pub",
		"Allow Topic:test-1* Pub",
		"Deny Topic:test-12* Pub",
		"Allow Topic:both Sub",
		"Deny Topic:both Sub",
		"Deny * Create",
		"Allow Topic:* Create",
		"Allow Topic:near Get 10.0.0.0/8",
		"Deny Topic:far All 127.0.0.1",
		"Deny Topic:half Pub",
		"Allow Topic:half Sub",
	)
	fallback := entries(t, "Allow Topic:* Pub,Sub", "Deny Topic:test* All")
	b := table(t, Policy{Custom, custom}, Policy{Default, fallback}).Book()
	for _, c := range []struct {
		resource Resource
		any      Actions
		ok       bool
	}{
		{Resource{Topic, "test-1"}, Pub, false},
		{Resource{Topic, "test-1x"}, Pub, true},
		{Resource{Topic, "test-12x"}, Pub, false},
		{Resource{Topic, "test-2"}, Pub, true},
		{Resource{Topic, "both"}, Sub, false},
		{Resource{Topic, "x"}, Create, true},
		{Resource{Group, "x"}, Create, false},
		{Resource{Group, "x"}, Pub, false},
		{Resource{Topic, "near"}, Get, false},
		{Resource{Topic, "far"}, Pub, false},
		{Resource{Topic, "other"}, Sub, true},
		{Resource{Topic, "test-2"}, Sub, false},
		{Resource{Topic, "other"}, Get, false},
		{Resource{Topic, "half"}, Pub | Sub, true},
		{Resource{Topic, "half"}, Pub, false},
	} {
		err := b.May("u", c.resource, c.any, here)
		var refused *RightError
		if (err == nil) != c.ok || (err != nil && !errors.As(err, &refused)) {
			t.Errorf("%s %b: %v, want allowed: %v", c.resource, c.any, err, c.ok)
		}
	}
	if err := b.May("u", Resource{Topic, "near"}, Get, netip.MustParseAddr("10.1.2.3")); err != nil {
		t.Error(err)
	}
	if err := b.May("root", Resource{Cluster, "c"}, Update, here); err != nil {
		t.Errorf("a super user: %v", err)
	}
}

// C137: what proves a user, and what does not, in each scheme.
func TestC137Credentials(t *testing.T) {
	t.Parallel()
	b := table(t, Policy{Custom, entries(t, "Allow * All")}).Book()
	now := time.Unix(1_000_000, 0)
	basic := func(pair string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)) }
	bearer := func(user, secret string, until string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(user + "." + until))
		return "Bearer " + user + "." + until + "." + hex.EncodeToString(mac.Sum(nil))
	}
	const date = "20260101T000000Z"
	sum, _ := base64.StdEncoding.DecodeString(Sign("secret", []byte(date)))
	signed := func(credential, signature string) string {
		return "MQv2-HMAC-SHA1 Credential=" + credential + ", SignedHeaders=x-mq-date-time, Signature=" + signature
	}
	for _, c := range []struct {
		header, date string
		ok           bool
	}{
		{"", "", false},
		{"Digest x", "", false},
		{"Basic !", "", false},
		{basic("u:secret"), "", true},
		{basic("u:Secret"), "", false},
		{basic("u:"), "", false},
		{basic("v:secret"), "", false},
		{bearer("u", "secret", "1000001"), "", true},
		{bearer("u", "secret", "1000000"), "", false},
		{bearer("u", "other", "1000001"), "", false},
		{bearer("u", "secret", "soon"), "", false},
		{"Bearer u", "", false},
		{signed("u", hex.EncodeToString(sum)), date, true},
		{signed("u//Rocketmq", strings.ToUpper(hex.EncodeToString(sum))), date, true},
		{signed("u", hex.EncodeToString(sum)), date + "1", false},
		{signed("u", hex.EncodeToString(sum)), "", false},
		{signed("u", ""), date, false},
		{signed("", hex.EncodeToString(sum)), date, false},
		{"MQv2-HMAC-SHA1 ", date, false},
	} {
		user, err := b.Authorized(c.header, c.date, now)
		var refused *CredentialError
		if (err == nil) != c.ok || (c.ok && user != "u") || (err != nil && !errors.As(err, &refused)) {
			t.Errorf("%q: user %q, %v", c.header, user, err)
		}
	}
	if err := b.Signed("u", Sign("secret", []byte("fields"), []byte("body")), []byte("fieldsbody")); err != nil {
		t.Error(err)
	}
	if b.Signed("u", Sign("secret", []byte("a")), []byte("b")) == nil || b.Signed("u", "", []byte("b")) == nil {
		t.Error("a wrong signature is accepted")
	}
	// Known answer, of RFC 2202's second case.
	if got := Sign(
		"Jefe",
		[]byte("what do ya want "),
		[]byte("for nothing?"),
	); got != "7/zfauXrL6LSdBbV8YTfnCWafHk=" {
		t.Errorf("signature %s", got)
	}
}

// plain is a plain_acl.yml as RocketMQ 4 ships it.
const plain = `
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.7
- 172.16.*.*
- 2001:db8::/32
accounts:
- accessKey: RocketMQ
  secretKey: "12345678"
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  groupPerms:
  - groupA=DENY
- accessKey: rocketmq2
  secretKey: "12345678"
  admin: true
`

func TestPlainACLOfRocketMQ4(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "plain_acl.yml")
	write := func(text string, at time.Time) {
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	write(plain, time.Unix(1, 0))
	tab, err := NewTable(Config{File: path, Logger: slog.New(slog.DiscardHandler)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := tab.Book()
	for addr, want := range map[string]bool{
		"10.10.103.9": true, "10.10.104.9": false, "192.168.0.7": true, "192.168.0.2": false, "172.16.9.1": true, "172.17.1.1": false,
		"2001:db8::1": true, "2001:db9::1": false,
	} {
		if b.Trusts(netip.MustParseAddr(addr)) != want {
			t.Errorf("%s: trusted is %v", addr, !want)
		}
	}
	for _, c := range []struct {
		on Resource
		do Actions
		ok bool
	}{
		{Resource{Topic, "topicA"}, Sub, false},
		{Resource{Topic, "topicB"}, Pub, true},
		{Resource{Topic, "topicC"}, Pub, false},
		{Resource{Topic, "topicC"}, Sub, true},
		{Resource{Topic, "other"}, Sub, false},
		{Resource{Group, "groupA"}, Sub, false},
		{Resource{Group, "other"}, Sub, true},
		{Resource{Cluster, "c"}, Get, false},
	} {
		if err := b.May("RocketMQ", c.on, c.do, here); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.on, err)
		}
	}
	if governs, err := b.Governs("rocketmq2"); err != nil || !governs {
		t.Errorf("the admin account: %v, %v", governs, err)
	}
	// A change is seen; a file that is broken or has nobody to govern leaves everything as it was.
	write(strings.Replace(plain, "topicC=SUB", "topicC=PUB", 1), time.Unix(2, 0))
	tab.Tick(time.Time{})
	if err := tab.Book().May("RocketMQ", Resource{Topic, "topicC"}, Pub, here); err != nil {
		t.Error(err)
	}
	for i, text := range []string{"accounts: [", "acounts: []", strings.Replace(plain, "=DENY", "=NONE", 1), "", "users: []"} {
		write(text, time.Unix(int64(3+i), 0))
		tab.Tick(time.Time{})
		if err := tab.Book().May("RocketMQ", Resource{Topic, "topicC"}, Pub, here); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A file that would ask for credentials from now on, and leave nobody who could change users, is of no use either.
func TestFileNeedsAGovernor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "auth.yaml")
	seconds := int64(0)
	write := func(text string) {
		seconds++
		at := time.Unix(seconds, 0)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	write("users: []")
	tab, err := NewTable(Config{File: path, Logger: slog.New(slog.DiscardHandler)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const user = "users: [{username: u, password: p}"
	for _, step := range []struct {
		text string
		on   bool
	}{{user + "]", false}, {user + ", {username: root, password: p, userType: Super}]", true}, {user + "]", true}} {
		write(step.text)
		tab.Tick(time.Time{})
		if governs, err := tab.Book().Governs("root"); tab.Book().On() != step.on || !governs {
			t.Errorf("%s: on is %v, root governs: %v, %v", step.text, tab.Book().On(), governs, err)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, u := range []User{
		{Username: "", Password: "x"},
		{Username: "a"},
		{Username: "a/b", Password: "x"},
		{Username: "a", Password: "x", UserType: "king"},
		{Username: "a", Password: "x", UserStatus: "gone"},
	} {
		if u.check() == nil {
			t.Errorf("%+v is accepted", u)
		}
	}
	for _, line := range []string{
		"Perhaps Topic:x Pub", "Allow Queue:x Pub", "Allow Topic: Pub", "Allow Topic:x Fly", "Allow Topic:x Any", "Allow Topic:x Pub 1.2.3",
	} {
		acl := ACL{Subject: "User:u", Policies: []Policy{{Entries: entries(t, line)}}}
		if acl.check() == nil {
			t.Errorf("%q is accepted", line)
		}
	}
	for _, acl := range []ACL{{Subject: "u"}, {Subject: "User:u"}, {Subject: "User:u", Policies: []Policy{{Type: "Other"}}}} {
		if acl.check() == nil {
			t.Errorf("%+v is accepted", acl)
		}
	}
	if _, err := NewTable(Config{Authentication: On, Logger: slog.New(slog.DiscardHandler)}, nil); err == nil {
		t.Error("a server that nobody can enter starts")
	}
}

func BenchmarkSigned(b *testing.B) {
	tab, err := NewTable(
		Config{Users: []User{{Username: "u", Password: "secret"}}, Logger: slog.New(slog.DiscardHandler)},
		nil,
	)
	if err != nil {
		b.Fatal(err)
	}
	content := make([]byte, 300)
	signature := Sign("secret", content)
	for b.Loop() {
		if err := tab.Book().Signed("u", signature, content); err != nil {
			b.Fatal(err)
		}
	}
}
