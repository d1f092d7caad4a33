// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"errors"

	"github.com/roquetmq/roquet/internal/auth"
	p "github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// userRequests keeps users and their rights: AUTH_CREATE_USER 3001, …_UPDATE_USER 3002, …_DELETE_USER 3003,
// …_GET_USER 3004, …_LIST_USER 3005, …_CREATE_ACL 3006, …_UPDATE_ACL 3007, …_DELETE_ACL 3008, …_GET_ACL 3009,
// …_LIST_ACL 3010. Changes are answered when they are durable. Secrets go out to whom the cluster may be watched by, as
// copyUser needs them. Source: AdminBrokerProcessor.java.
// Known difference: the first user has to be a super user, and the last one cannot go.
type userRequests struct{ *node }

func (s userRequests) create(c *call, h *p.CreateUserRequestHeader) (answer, error) {
	return s.put(c, h.Username, s.users.CreateUser)
}

func (s userRequests) update(c *call, h *p.UpdateUserRequestHeader) (answer, error) {
	return s.put(c, h.Username, s.users.UpdateUser)
}

func (s userRequests) put(c *call, name string, put func(as string, u auth.User) error) (answer, error) {
	u, err := userBody(c, name)
	if err == nil {
		err = put(c.User, u)
	}
	return changed(c, err)
}

// changed is the answer to a change. What cannot be done so is NO_PERMISSION to native clients, the original's code for
// all of it.
func changed(c *call, err error) (answer, error) {
	if refused, ok := errors.AsType[*auth.ChangeError](err); ok && c.Protocol != remoting.ProtocolRemoting {
		err = &p.Error{Code: p.InvalidParameter, Remark: refused.Reason}
	}
	return answer{}, err
}

func userBody(c *call, name string) (auth.User, error) {
	if err := needName(name); err != nil {
		return auth.User{}, err
	}
	info, err := p.DecodeBody[p.UserInfo](c.Body)
	if err != nil {
		return auth.User{}, err
	}
	info.Username = cloned(name)
	return auth.User(*info), nil
}

func needName(name string) error {
	if name == "" {
		return &p.Error{Code: p.InvalidParameter, Remark: "The username is blank"}
	}
	return nil
}

func (s userRequests) remove(c *call, h *p.DeleteUserRequestHeader) (answer, error) {
	err := needName(h.Username)
	if err == nil {
		err = s.users.DeleteUser(c.User, cloned(h.Username))
	}
	return changed(c, err)
}

// get answers without a body for a user that is not there.
func (s userRequests) get(_ *call, h *p.GetUserRequestHeader) (answer, error) {
	if err := needName(h.Username); err != nil {
		return answer{}, err
	}
	u, ok := s.users.User(h.Username)
	if !ok {
		return answer{}, nil
	}
	return answer{Body: p.EncodeBody(new(p.UserInfo(u)))}, nil
}

func (s userRequests) list(_ *call, h *p.ListUsersRequestHeader) (answer, error) {
	infos := mapped(s.users.Users(h.Filter), func(u auth.User) p.UserInfo { return p.UserInfo(u) })
	return answer{Body: p.EncodeBodies(infos)}, nil
}

func (s userRequests) createACL(c *call, h *p.CreateAclRequestHeader) (answer, error) {
	return s.putACL(c, h.Subject)
}

func (s userRequests) updateACL(c *call, h *p.UpdateAclRequestHeader) (answer, error) {
	return s.putACL(c, h.Subject)
}

func (s userRequests) putACL(c *call, subject string) (answer, error) {
	info, err := p.DecodeBody[p.AclInfo](c.Body)
	if err != nil {
		return answer{}, err
	}
	info.Subject = cmp.Or(info.Subject, cloned(subject))
	acl := auth.ACL{Subject: info.Subject}
	for _, policy := range info.Policies {
		entries := mapped(policy.Entries, func(e p.PolicyEntryInfo) auth.Entry { return auth.Entry(e) })
		acl.Policies = append(acl.Policies, auth.Policy{Type: policy.PolicyType, Entries: entries})
	}
	return changed(c, s.users.PutACL(acl))
}

func (s userRequests) removeACL(c *call, h *p.DeleteAclRequestHeader) (answer, error) {
	return changed(c, s.users.DeleteACL(cloned(h.Subject), h.PolicyType, h.Resource))
}

// getACL answers without a body for a subject that has no rules.
func (s userRequests) getACL(_ *call, h *p.GetAclRequestHeader) (answer, error) {
	acl, err := s.users.ACL(h.Subject)
	if err != nil || acl == nil {
		return answer{}, err
	}
	return answer{Body: p.EncodeBody(new(aclInfo(acl)))}, nil
}

func (s userRequests) listACL(_ *call, h *p.ListAclsRequestHeader) (answer, error) {
	acls := s.users.ACLs(h.SubjectFilter, h.ResourceFilter)
	infos := mapped(acls, func(acl auth.ACL) p.AclInfo { return aclInfo(&acl) })
	return answer{Body: p.EncodeBodies(infos)}, nil
}

func aclInfo(acl *auth.ACL) p.AclInfo {
	info := p.AclInfo{Subject: acl.Subject}
	for _, policy := range acl.Policies {
		entries := mapped(policy.Entries, func(e auth.Entry) p.PolicyEntryInfo { return p.PolicyEntryInfo(e) })
		info.Policies = append(info.Policies, p.PolicyInfo{Entries: entries, PolicyType: policy.Type})
	}
	return info
}
