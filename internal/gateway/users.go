// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/protocol"
)

const subjectPrefix = "User:" // of what rules are for

func userOf(u *protocol.UserInfo) *v1.User {
	return &v1.User{Name: u.Username, Type: u.UserType, Status: u.UserStatus}
}

func (d *door) ListUsers(ctx context.Context, in *v1.ListUsersRequest) (*v1.ListUsersResponse, error) {
	answer, err := d.call(ctx, protocol.AuthListUser, &protocol.ListUsersRequestHeader{Filter: in.GetFilter()}, nil)
	if err != nil {
		return nil, err
	}
	all, err := protocol.DecodeBodies[protocol.UserInfo](answer.Body)
	out := &v1.ListUsersResponse{}
	for i := range all {
		out.Users = append(out.Users, userOf(&all[i]))
	}
	return out, err
}

func (d *door) GetUser(ctx context.Context, in *v1.GetUserRequest) (*v1.User, error) {
	answer, err := d.call(ctx, protocol.AuthGetUser, &protocol.GetUserRequestHeader{Username: in.GetUser()}, nil)
	if err == nil && len(answer.Body) == 0 {
		return nil, refuse(v2.Code_NOT_FOUND, "there is no user %s", in.GetUser())
	}
	u, err := body[protocol.UserInfo](answer, err)
	if err != nil {
		return nil, err
	}
	return userOf(u), nil
}

func (d *door) PutUser(ctx context.Context, in *v1.PutUserRequest) (*v1.User, error) {
	info := protocol.EncodeBody(&protocol.UserInfo{
		Password: in.GetSecret(), UserType: in.GetType(), UserStatus: in.GetStatus(),
	})
	known, err := d.call(ctx, protocol.AuthGetUser, &protocol.GetUserRequestHeader{Username: in.GetUser()}, nil)
	switch {
	case err != nil:
	case len(known.Body) == 0:
		_, err = d.call(ctx, protocol.AuthCreateUser, &protocol.CreateUserRequestHeader{Username: in.GetUser()}, info)
	default:
		_, err = d.call(ctx, protocol.AuthUpdateUser, &protocol.UpdateUserRequestHeader{Username: in.GetUser()}, info)
	}
	// Whoever made the first user is asked for credentials from now on, so the answer asks nothing more.
	return &v1.User{Name: in.GetUser(), Type: in.GetType(), Status: in.GetStatus()}, err
}

func (d *door) DeleteUser(ctx context.Context, in *v1.DeleteUserRequest) (*v1.DeleteUserResponse, error) {
	_, err := d.call(ctx, protocol.AuthDeleteUser, &protocol.DeleteUserRequestHeader{Username: in.GetUser()}, nil)
	return &v1.DeleteUserResponse{}, err
}

func aclOf(info *protocol.AclInfo) *v1.Acl {
	out := &v1.Acl{Subject: info.Subject}
	for _, policy := range info.Policies {
		for _, e := range policy.Entries {
			out.Rules = append(out.Rules, &v1.Rule{
				Resource: e.Resource, Actions: e.Actions, Decision: e.Decision, SourceIps: e.SourceIPs,
				Policy: policy.PolicyType,
			})
		}
	}
	return out
}

func (d *door) ListAcls(ctx context.Context, in *v1.ListAclsRequest) (*v1.ListAclsResponse, error) {
	h := &protocol.ListAclsRequestHeader{SubjectFilter: in.GetSubject(), ResourceFilter: in.GetResource()}
	answer, err := d.call(ctx, protocol.AuthListACL, h, nil)
	if err != nil {
		return nil, err
	}
	all, err := protocol.DecodeBodies[protocol.AclInfo](answer.Body)
	out := &v1.ListAclsResponse{}
	for i := range all {
		out.Acls = append(out.Acls, aclOf(&all[i]))
	}
	return out, err
}

func (d *door) GetAcl(ctx context.Context, in *v1.GetAclRequest) (*v1.Acl, error) {
	subject := subjectPrefix + in.GetUser()
	answer, err := d.call(ctx, protocol.AuthGetACL, &protocol.GetAclRequestHeader{Subject: subject}, nil)
	if err == nil && len(answer.Body) == 0 {
		return &v1.Acl{Subject: subject}, nil
	}
	info, err := body[protocol.AclInfo](answer, err)
	if err != nil {
		return nil, err
	}
	return aclOf(info), nil
}

func (d *door) PutAcl(ctx context.Context, in *v1.PutAclRequest) (*v1.Acl, error) {
	info := &protocol.AclInfo{Subject: subjectPrefix + in.GetUser()}
	for _, r := range in.GetRules() {
		e := protocol.PolicyEntryInfo{
			Actions: r.GetActions(), Decision: cmp.Or(r.GetDecision(), "Allow"), Resource: r.GetResource(),
			SourceIPs: r.GetSourceIps(),
		}
		info.Policies = append(info.Policies, protocol.PolicyInfo{
			PolicyType: r.GetPolicy(), Entries: []protocol.PolicyEntryInfo{e},
		})
	}
	h := &protocol.UpdateAclRequestHeader{Subject: info.Subject}
	if _, err := d.call(ctx, protocol.AuthUpdateACL, h, protocol.EncodeBody(info)); err != nil {
		return nil, err
	}
	return d.GetAcl(ctx, &v1.GetAclRequest{User: in.GetUser()})
}

func (d *door) DeleteAcl(ctx context.Context, in *v1.DeleteAclRequest) (*v1.DeleteAclResponse, error) {
	_, err := d.call(ctx, protocol.AuthDeleteACL, &protocol.DeleteAclRequestHeader{
		Subject: subjectPrefix + in.GetUser(), Resource: in.GetResource(), PolicyType: in.GetPolicy(),
	}, nil)
	return &v1.DeleteAclResponse{}, err
}
