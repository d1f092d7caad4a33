// SPDX-License-Identifier: Apache-2.0

package protocol

// UserInfo is a user, in requests and answers of the AUTH_…_USER codes. Empty fields are not written.
type UserInfo struct {
	Password   string
	UserStatus string // enable or disable
	UserType   string // Super or Normal
	Username   string
}

func (i *UserInfo) fields(c *bodyCodec) {
	c.optText("password", &i.Password)
	c.optText("userStatus", &i.UserStatus)
	c.optText("userType", &i.UserType)
	c.optText("username", &i.Username)
}

// AclInfo is what a subject ("User:name") may do, in requests and answers of the AUTH_…_ACL codes. Nil lists
// are not written.
type AclInfo struct {
	Policies []PolicyInfo
	Subject  string
}

func (i *AclInfo) fields(c *bodyCodec) {
	optList(c, "policies", &i.Policies, objectValue[PolicyInfo])
	c.optText("subject", &i.Subject)
}

// PolicyInfo is a list of rules. PolicyType is Custom or Default; empty means Custom.
type PolicyInfo struct {
	Entries    []PolicyEntryInfo
	PolicyType string
}

func (i *PolicyInfo) fields(c *bodyCodec) {
	optList(c, "entries", &i.Entries, objectValue[PolicyEntryInfo])
	c.optText("policyType", &i.PolicyType)
}

// PolicyEntryInfo is one rule: which actions on a resource ("Topic:name", "Group:prefix*") from where.
type PolicyEntryInfo struct {
	Actions   []string // Pub, Sub, Create, Update, Delete, Get, List, All, Any
	Decision  string   // Allow or Deny
	Resource  string
	SourceIPs []string // addresses or networks; nil: from everywhere
}

func (i *PolicyEntryInfo) fields(c *bodyCodec) {
	optList(c, "actions", &i.Actions, textValue)
	c.optText("decision", &i.Decision)
	c.optText("resource", &i.Resource)
	optList(c, "sourceIps", &i.SourceIPs, textValue)
}
