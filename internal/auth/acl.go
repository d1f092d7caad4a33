// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"net/netip"
	"slices"
	"strings"
)

// ACL is what a subject ("User:name") may do. The JSON form is the one in the log, the YAML form the one in files.
// Source: Acl.java.
type ACL struct {
	Subject  string   `json:"subject" yaml:"subject"`
	Policies []Policy `json:"policies" yaml:"policies"`
}

// The types of policies: the rules of Default count where no rule of Custom does.
const (
	Custom  = "Custom"
	Default = "Default"
)

// Policy is a list of rules. Type is Custom or Default.
type Policy struct {
	Type    string  `json:"policyType" yaml:"policyType"`
	Entries []Entry `json:"entries"    yaml:"entries"`
}

// Entry is one rule: which actions on a resource ("Topic:name", "Group:begin*", "*") from where are allowed or denied.
type Entry struct {
	Actions   []string `json:"actions"             yaml:"actions"`
	Decision  string   `json:"decision"            yaml:"decision"` // Allow or Deny
	Resource  string   `json:"resource"            yaml:"resource"`
	SourceIPs []string `json:"sourceIps,omitempty" yaml:"sourceIps"` // addresses or networks; empty: everywhere
}

const subjectPrefix = "User:"

// userOf is the name of the subject's user.
func userOf(subject string) (string, error) {
	if name, ok := strings.CutPrefix(subject, subjectPrefix); ok && name != "" {
		return name, nil
	}
	return "", refuse("%q is no subject: wanted User:name", subject)
}

// rule is an Entry, ready to decide.
type rule struct {
	pattern

	actions Actions
	deny    bool
	from    []netip.Prefix
	rank    int // of two rules for the same request the one with the larger rank decides
}

func (e *Entry) rule() (r rule, err error) {
	if r.pattern, err = parsePattern(e.Resource); err != nil {
		return r, err
	}
	if r.actions, err = parseActions(e.Actions); err != nil {
		return r, err
	}
	r.deny = strings.EqualFold(e.Decision, "Deny")
	if !r.deny && !strings.EqualFold(e.Decision, "Allow") {
		return r, refuse("The decision is null or illegal: %q is neither Allow nor Deny", e.Decision)
	}
	for _, text := range e.SourceIPs {
		network, err := netip.ParsePrefix(text)
		if addr, err2 := netip.ParseAddr(text); err2 == nil {
			network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return r, refuse("The source ip is invalid: %q is neither an address nor a network", text)
		}
		r.from = append(r.from, network.Masked())
	}
	if r.rank = 2 * r.weight(); r.deny {
		r.rank++
	}
	return r, nil
}

// rules returns the rules of the policies of a type.
func (a *ACL) rules(policy string) (all []rule, err error) {
	for _, p := range a.Policies {
		if p.Type != policy {
			continue
		}
		for i := range p.Entries {
			r, err := p.Entries[i].rule()
			if err != nil {
				return nil, err
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// decide returns the rule that decides: a literal name before a prefix, a longer prefix before a shorter one, a kind
// before all kinds, and among equals a denial. Nil: no rule is for this.
// Source: AclAuthorizationHandler.java. Known difference: there, an allowance goes before a denial of the same
// resource, against what the comment beside it says.
func decide(rules []rule, on Resource, action Actions, from netip.Addr) *rule {
	var best *rule
	for i := range rules {
		r := &rules[i]
		if r.actions&action != 0 && r.covers(on) && (len(r.from) == 0 || contains(r.from, from)) &&
			(best == nil || r.rank > best.rank) {
			best = r
		}
	}
	return best
}

func contains(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// check brings an ACL into its form and refuses what cannot be. Source: AuthorizationMetadataManagerImpl.java.
func (a *ACL) check() error {
	if _, err := userOf(a.Subject); err != nil {
		return err
	}
	if len(a.Policies) == 0 {
		return refuse("The policies is empty.")
	}
	for i := range a.Policies {
		p := &a.Policies[i]
		if err := settle(&p.Type, "policyType", Custom, Default); err != nil {
			return err
		}
		if len(p.Entries) == 0 {
			return refuse("The policy entries is empty.")
		}
		for j := range p.Entries {
			r, err := p.Entries[j].rule()
			if err != nil {
				return err
			}
			p.Entries[j].Actions, p.Entries[j].Decision = r.actions.names(), "Allow"
			if r.deny {
				p.Entries[j].Decision = "Deny"
			}
		}
	}
	return nil
}

// merged is a with the rules of o: each takes the place of one for the same resource in the policy of its type.
// Source: Policy.java updateEntry.
func (a *ACL) merged(o *ACL) ACL {
	out := ACL{Subject: o.Subject}
	for _, p := range a.Policies {
		out.Policies = append(out.Policies, Policy{p.Type, slices.Clone(p.Entries)})
	}
	for _, p := range o.Policies {
		at := slices.IndexFunc(out.Policies, func(q Policy) bool { return q.Type == p.Type })
		if at < 0 {
			out.Policies = append(out.Policies, Policy{Type: p.Type})
			at = len(out.Policies) - 1
		}
		entries := &out.Policies[at].Entries
		for _, e := range p.Entries {
			if i := slices.IndexFunc(*entries, func(f Entry) bool { return f.Resource == e.Resource }); i >= 0 {
				(*entries)[i] = e
			} else {
				*entries = append(*entries, e)
			}
		}
	}
	return out
}

// without is a without the rules that the filter selects, and without policies that have none left.
func (a *ACL) without(gone func(policy string, e *Entry) bool) ACL {
	out := ACL{Subject: a.Subject}
	for _, p := range a.Policies {
		left := Policy{Type: p.Type}
		for i := range p.Entries {
			if !gone(p.Type, &p.Entries[i]) {
				left.Entries = append(left.Entries, p.Entries[i])
			}
		}
		if len(left.Entries) > 0 {
			out.Policies = append(out.Policies, left)
		}
	}
	return out
}
