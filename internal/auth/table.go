// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// Values of Config.Authentication and Config.Authorization. Auto: as soon as there is a user.
const (
	Auto = "auto"
	On   = "true"
	Off  = "false"
)

// Config says when requests need credentials and rights, and who is there besides those in the log.
type Config struct {
	Authentication string // Auto, On or Off; empty: Auto
	Authorization  string // Auto (with authentication), On or Off; empty: Auto
	File           string // YAML with users, rules and addresses, see file; empty: none
	Users          []User // super users that settings name; a stored user or one of the file goes before them
	Logger         *slog.Logger
}

// State keys of message.SpaceUser begin with what they are; the rest is the name or the subject.
const (
	keyUser = "u"
	keyACL  = "a"
)

// Table is the users and rules of a process. All methods are safe for concurrent use; those that change something
// wait until that is durable.
type Table struct {
	cfg     Config
	journal store.Journal // nil: nothing can be changed
	book    atomic.Pointer[Book]
	changes sync.Mutex // one change at a time

	mu struct {
		sync.Mutex
		users map[string]User // of the log
		acls  map[string]ACL
		file  file
	}
}

// NewTable reads the file and the journal, if there is one, and subscribes to it: before the store runs.
func NewTable(cfg Config, journal store.Journal) (*Table, error) {
	t := &Table{cfg: cfg, journal: journal}
	t.mu.users, t.mu.acls = map[string]User{}, map[string]ACL{}
	for i := range cfg.Users {
		cfg.Users[i].UserType = Super
		if err := cfg.Users[i].check(); err != nil {
			return nil, fmt.Errorf("user of the settings: %w", err)
		}
	}
	if cfg.File != "" {
		f, err := readFile(cfg.File)
		if err != nil {
			return nil, err
		}
		t.mu.file = *f
	}
	if journal != nil {
		for st, err := range journal.States(message.SpaceUser, nil) {
			if err == nil {
				err = t.take(st)
			}
			if err != nil {
				return nil, fmt.Errorf("load users: %w", err)
			}
		}
		journal.OnState(message.SpaceUser, t.apply)
	}
	t.rebuildLocked()
	if b := t.Book(); b.on && !anyGoverns(b.accounts) {
		return nil, errors.New(
			"requests need credentials and nobody could change users: there is no enabled super user. " +
				"Set initAuthenticationUser={\"username\":…,\"password\":…}, or name one in authFile",
		)
	}
	return t, nil
}

// Book is the users and rules as they are now.
func (t *Table) Book() *Book { return t.book.Load() }

// take takes over one state record.
func (t *Table) take(st message.State) error {
	key := string(st.Key)
	switch name := key[min(1, len(key)):]; {
	case strings.HasPrefix(key, keyUser):
		return takeInto(t.mu.users, name, &st)
	case strings.HasPrefix(key, keyACL):
		return takeInto(t.mu.acls, name, &st)
	}
	return nil
}

func takeInto[V any](table map[string]V, name string, st *message.State) error {
	if st.Delete {
		delete(table, name)
		return nil
	}
	var v V
	if err := json.Unmarshal(st.Value, &v); err != nil {
		return fmt.Errorf("decode %q: %w", st.Key, err)
	}
	table[name] = v
	return nil
}

// apply takes one change over into what requests are checked against. Applier only.
func (t *Table) apply(st message.State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.take(st); err != nil {
		t.cfg.Logger.Error("stored user or rules cannot be read", "error", err)
		return
	}
	t.rebuildLocked()
}

// rebuildLocked makes the book that requests are checked against.
func (t *Table) rebuildLocked() { t.book.Store(t.bookLocked()) }

// bookLocked makes a book: the file goes before the log, and that before the settings.
func (t *Table) bookLocked() *Book {
	b := &Book{accounts: map[string]*account{}, acls: maps.Clone(t.mu.acls), trusted: t.mu.file.trusted}
	for _, u := range slices.Concat(t.cfg.Users, slices.Collect(maps.Values(t.mu.users)), t.mu.file.Users) {
		b.accounts[u.Username] = newAccount(u)
	}
	for _, acl := range t.mu.file.ACLs {
		b.acls[acl.Subject] = acl
	}
	for subject, acl := range b.acls {
		a := b.accounts[strings.TrimPrefix(subject, subjectPrefix)]
		if a == nil {
			continue
		}
		var err, err2 error
		a.custom, err = acl.rules(Custom)
		a.fallback, err2 = acl.rules(Default)
		if err := errors.Join(err, err2); err != nil {
			t.cfg.Logger.Error("rules cannot be read, so the user has none", "subject", subject, "error", err)
			a.custom, a.fallback = nil, nil
		}
	}
	b.on = t.cfg.Authentication == On || (t.cfg.Authentication != Off && len(b.accounts) > 0)
	b.rights = t.cfg.Authorization != Off
	return b
}

// User returns a user. The secret is in it.
func (t *Table) User(name string) (User, bool) {
	if a := t.Book().accounts[name]; a != nil {
		return a.User, true
	}
	return User{}, false
}

// Users returns the users whose name contains filter, by name. The secrets are in them.
func (t *Table) Users(filter string) (all []User) {
	accounts := t.Book().accounts
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		if strings.Contains(name, filter) {
			all = append(all, accounts[name].User)
		}
	}
	return all
}

// ACL returns the rules of a subject whose user exists; nil if it has none. Errors: *ChangeError.
func (t *Table) ACL(subject string) (*ACL, error) {
	name, err := userOf(subject)
	if err != nil {
		return nil, err
	}
	b := t.Book()
	if b.accounts[name] == nil {
		return nil, refuse("The subject is not exist.")
	}
	if acl, ok := b.acls[subject]; ok {
		return &acl, nil
	}
	return nil, nil //nolint:nilnil // it has none
}

// ACLs returns the rules whose subject and resource contain the filters, by subject.
// Source: LocalAuthorizationMetadataProvider.java listAcl.
func (t *Table) ACLs(subjectFilter, resourceFilter string) (all []ACL) {
	acls := t.Book().acls
	for _, subject := range slices.Sorted(maps.Keys(acls)) {
		acl := acls[subject]
		left := acl.without(func(_ string, e *Entry) bool { return !strings.Contains(e.Resource, resourceFilter) })
		if strings.Contains(subject, subjectFilter) && len(left.Policies) > 0 {
			all = append(all, left)
		}
	}
	return all
}

// CreateUser adds a user. by is whose request it is, empty while nobody needs credentials: only a super user makes
// one. The first user has to be a super user, since nobody else could make the next one. Errors: *ChangeError, and the
// journal's.
func (t *Table) CreateUser(by string, u User) error {
	return t.changeUser(by, u.Username, func(old *User) (*User, error) {
		if old != nil {
			return nil, refuse("The user is existed")
		}
		return &u, u.check()
	})
}

// UpdateUser changes what u says of an existing user; what is empty stays. Errors: as CreateUser.
func (t *Table) UpdateUser(by string, u User) error {
	return t.changeUser(by, u.Username, func(old *User) (*User, error) {
		if old == nil {
			return nil, refuse("The user is not exist")
		}
		next := *old
		next.Password = cmp.Or(u.Password, old.Password)
		next.UserType = cmp.Or(u.UserType, old.UserType)
		next.UserStatus = cmp.Or(u.UserStatus, old.UserStatus)
		return &next, next.check()
	})
}

// DeleteUser deletes a user with its rules; one that is not there is no error. Errors: as CreateUser.
func (t *Table) DeleteUser(by, name string) error {
	return t.changeUser(by, name, func(*User) (*User, error) { return nil, nil }) //nolint:nilnil // deleted
}

// changeUser changes one user: next makes the new one of the old, nil for none.
func (t *Table) changeUser(by, name string, next func(old *User) (*User, error)) error {
	t.changes.Lock()
	defer t.changes.Unlock()
	t.mu.Lock()
	_, stored := t.mu.users[name]
	fixed := slices.ContainsFunc(t.mu.file.Users, func(u User) bool { return u.Username == name })
	t.mu.Unlock()
	b := t.Book()
	var old *User
	if a := b.accounts[name]; a != nil {
		old = &a.User
	}
	changed, err := next(old)
	switch {
	case err != nil:
		return err
	case old == nil && changed == nil:
		return nil
	case fixed, changed == nil && !stored:
		return refuse("User:%s stands in the file or settings of the server: change it there", name)
	}
	governor, err := b.Governs(by)
	if err == nil && !governor && (old.isSuper() || changed.isSuper()) {
		err = refuse("The super user can only be create, update or delete by super user")
	}
	if err != nil {
		return err
	}
	left := maps.Clone(b.accounts)
	delete(left, name)
	if changed != nil {
		left[name] = newAccount(*changed)
	}
	if t.cfg.Authentication != Off && len(left) > 0 && !anyGoverns(left) {
		return refuse(
			"nobody could change users any more: there would be no enabled super user. The first user has to be "+
				"one, and the last one stays (mqadmin createUser -u %s -p … -t Super)",
			name,
		)
	}
	st, err := message.JSONState(message.SpaceUser, keyUser+name, changed)
	if err != nil {
		return err
	}
	states := []message.State{st}
	if st.Delete {
		st.Key = []byte(keyACL + subjectPrefix + name)
		states = append(states, st)
	}
	return t.write(states...)
}

func anyGoverns(accounts map[string]*account) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(accounts)), func(a *account) bool { return a.governs() })
}

// PutACL adds rules to a subject's; each takes the place of one for the same resource. Errors: *ChangeError, and the
// journal's.
func (t *Table) PutACL(acl ACL) error {
	if err := acl.check(); err != nil {
		return err
	}
	return t.changeACL(acl.Subject, func(old *ACL) (ACL, error) { return old.merged(&acl), nil })
}

// DeleteACL deletes a subject's rules for a resource in the policy of a type (empty: Custom), or all of them when
// resource is empty. Errors: as PutACL.
func (t *Table) DeleteACL(subject, policy, resource string) error {
	return t.changeACL(subject, func(old *ACL) (ACL, error) {
		if len(old.Policies) == 0 {
			return ACL{}, refuse("The acl is not exist.")
		}
		return old.without(func(p string, e *Entry) bool {
			return resource == "" ||
				(e.Resource == resource && (strings.EqualFold(p, policy) || policy == "" && p == Custom))
		}), nil
	})
}

func (t *Table) changeACL(subject string, next func(old *ACL) (ACL, error)) error {
	t.changes.Lock()
	defer t.changes.Unlock()
	old, err := t.ACL(subject)
	if err != nil {
		return err
	}
	if old == nil {
		old = &ACL{Subject: subject}
	}
	t.mu.Lock()
	fixed := slices.ContainsFunc(t.mu.file.ACLs, func(a ACL) bool { return a.Subject == subject })
	t.mu.Unlock()
	if fixed {
		return refuse("the rules of %s stand in the server's file %s: change them there", subject, t.cfg.File)
	}
	changed, err := next(old)
	if err != nil || reflect.DeepEqual(&changed, old) {
		return err
	}
	stored := &changed
	if len(changed.Policies) == 0 {
		stored = nil
	}
	st, err := message.JSONState(message.SpaceUser, keyACL+subject, stored)
	if err != nil {
		return err
	}
	return t.write(st)
}

// write makes states durable and seen.
func (t *Table) write(states ...message.State) error {
	if t.journal == nil {
		return refuse("this process is no broker and keeps no users: change its authFile")
	}
	return store.AppendAndWait(t.journal, &store.Write{State: states})
}
