// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/protocol"
)

// users is roquet.v1.UserService.
type users struct{ *door }

var _ v1.UserServiceClient = users{}

const subjectPrefix = "User:" // of what rules are for

func userOf(u *protocol.UserInfo) *v1.User {
	return &v1.User{Name: u.Username, Type: u.UserType, Status: u.UserStatus}
}

func (s users) ListUsers(ctx context.Context, in *v1.ListUsersRequest, _ ...opt) (*v1.ListUsersResponse, error) {
	answer, err := s.call(ctx, protocol.AuthListUser, &protocol.ListUsersRequestHeader{Filter: in.GetFilter()}, nil)
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

func (s users) GetUser(ctx context.Context, in *v1.GetUserRequest, _ ...opt) (*v1.User, error) {
	answer, err := s.call(ctx, protocol.AuthGetUser, &protocol.GetUserRequestHeader{Username: in.GetUser()}, nil)
	if err == nil && len(answer.Body) == 0 {
		return nil, refuse(v2.Code_NOT_FOUND, "there is no user %s", in.GetUser())
	}
	u, err := body[protocol.UserInfo](answer, err)
	if err != nil {
		return nil, err
	}
	return userOf(u), nil
}

func (s users) PutUser(ctx context.Context, in *v1.PutUserRequest, _ ...opt) (*v1.User, error) {
	info := protocol.EncodeBody(&protocol.UserInfo{
		Password: in.GetSecret(), UserType: in.GetType(), UserStatus: in.GetStatus(),
	})
	known, err := s.call(ctx, protocol.AuthGetUser, &protocol.GetUserRequestHeader{Username: in.GetUser()}, nil)
	switch {
	case err != nil:
	case len(known.Body) == 0:
		_, err = s.call(ctx, protocol.AuthCreateUser, &protocol.CreateUserRequestHeader{Username: in.GetUser()}, info)
	default:
		_, err = s.call(ctx, protocol.AuthUpdateUser, &protocol.UpdateUserRequestHeader{Username: in.GetUser()}, info)
	}
	// Whoever made the first user is asked for credentials from now on, so the answer asks nothing more.
	return &v1.User{Name: in.GetUser(), Type: in.GetType(), Status: in.GetStatus()}, err
}

func (s users) DeleteUser(ctx context.Context, in *v1.DeleteUserRequest, _ ...opt) (*v1.DeleteUserResponse, error) {
	_, err := s.call(ctx, protocol.AuthDeleteUser, &protocol.DeleteUserRequestHeader{Username: in.GetUser()}, nil)
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

func (s users) ListAcls(ctx context.Context, in *v1.ListAclsRequest, _ ...opt) (*v1.ListAclsResponse, error) {
	h := &protocol.ListAclsRequestHeader{SubjectFilter: in.GetSubject(), ResourceFilter: in.GetResource()}
	answer, err := s.call(ctx, protocol.AuthListACL, h, nil)
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

func (s users) GetAcl(ctx context.Context, in *v1.GetAclRequest, _ ...opt) (*v1.Acl, error) {
	subject := subjectPrefix + in.GetUser()
	answer, err := s.call(ctx, protocol.AuthGetACL, &protocol.GetAclRequestHeader{Subject: subject}, nil)
	if err == nil && len(answer.Body) == 0 {
		return &v1.Acl{Subject: subject}, nil
	}
	info, err := body[protocol.AclInfo](answer, err)
	if err != nil {
		return nil, err
	}
	return aclOf(info), nil
}

func (s users) PutAcl(ctx context.Context, in *v1.PutAclRequest, _ ...opt) (*v1.Acl, error) {
	info := &protocol.AclInfo{Subject: subjectPrefix + in.GetUser()}
	for _, r := range in.GetRules() {
		e := protocol.PolicyEntryInfo{
			Actions: r.GetActions(), Decision: r.GetDecision(), Resource: r.GetResource(),
			SourceIPs: r.GetSourceIps(),
		}
		e.Decision = cmp.Or(e.Decision, "Allow")
		info.Policies = append(info.Policies, protocol.PolicyInfo{
			PolicyType: r.GetPolicy(), Entries: []protocol.PolicyEntryInfo{e},
		})
	}
	h := &protocol.UpdateAclRequestHeader{Subject: info.Subject}
	if _, err := s.call(ctx, protocol.AuthUpdateACL, h, protocol.EncodeBody(info)); err != nil {
		return nil, err
	}
	return s.GetAcl(ctx, &v1.GetAclRequest{User: in.GetUser()})
}

func (s users) DeleteAcl(ctx context.Context, in *v1.DeleteAclRequest, _ ...opt) (*v1.DeleteAclResponse, error) {
	_, err := s.call(ctx, protocol.AuthDeleteACL, &protocol.DeleteAclRequestHeader{
		Subject: subjectPrefix + in.GetUser(), Resource: in.GetResource(), PolicyType: in.GetPolicy(),
	}, nil)
	return &v1.DeleteAclResponse{}, err
}
