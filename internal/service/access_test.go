// SPDX-License-Identifier: Apache-2.0

package service

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/roquetmq/roquet/internal/auth"
	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// The users of guarded services: root may everything, fit what rights of its own allow, bare nothing.
var (
	root  = Signer{"root", "root-secret"}
	fit   = Signer{"fit", "fit-secret"}
	bare  = Signer{"bare", "bare-secret"}
	wrong = Signer{"root", "not-its-secret"}
)

const guardedFile = `
users:
  - {username: root, password: root-secret, userType: Super}
  - {username: fit, password: fit-secret}
  - {username: bare, password: bare-secret}
acls:
  - subject: User:fit
    policies:
      - policyType: Custom
        entries:
          - {resource: "Topic:t", actions: [All], decision: Allow}
          - {resource: "Group:g", actions: [All], decision: Allow}
          - {resource: "Cluster:*", actions: [All], decision: Allow}
`

// guarded makes a service ask for credentials: users come from a file.
func guarded(t *testing.T, file string) func(*config.Config) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "auth.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(cfg *config.Config) { cfg.Auth.File = path }
}

// as is call by a user.
func (w *wire) as(who Signer, code protocol.Code, h protocol.Header, body []byte) *protocol.Command {
	w.t.Helper()
	return w.call(code, who.Sign(h, body), body)
}

// wantCode is as for a request that must be answered with the code.
func (w *wire) wantCode(
	want protocol.ResponseCode, who Signer, code protocol.Code, h protocol.Header, body []byte,
) string {
	w.t.Helper()
	return w.answerTo(want, who, code, h, body).Remark
}

func (w *wire) answerTo(
	want protocol.ResponseCode, who Signer, code protocol.Code, h protocol.Header, body []byte,
) *protocol.Command {
	w.t.Helper()
	answer := w.as(who, code, h, body)
	if answer.Code != int32(want) {
		w.t.Fatalf("%s by %q: code %d %q, want %s", code, who.AccessKey, answer.Code, answer.Remark, want)
	}
	return answer
}

// sampleHeader is a header of the code that is about topic t and group g.
func sampleHeader(code protocol.Code) protocol.Header {
	h := protocol.RequestHeader(code)
	if h == nil {
		return nil
	}
	v := reflect.ValueOf(h).Elem()
	for name, value := range map[string]string{
		"Topic": "t", "OriginTopic": "t", "ConsumerGroup": "g", "Group": "g", "GroupName": "g", "DestGroup": "g",
		"CompareGroup": "g", "SrcGroup": "g", "Subject": "User:fit", "Username": "nobody", "ClusterName": "DefaultCluster",
	} {
		if f := v.FieldByName(name); f.IsValid() && f.Kind() == reflect.String {
			f.SetString(value)
		}
	}
	return h
}

// sampleBody is a body of the code that is about topic t and group g.
func sampleBody(code protocol.Code) []byte {
	switch code {
	case protocol.HeartBeat:
		return protocol.EncodeBody(&protocol.HeartbeatData{ClientID: "c", ConsumerDataSet: []protocol.ConsumerData{{
			GroupName: "g", SubscriptionDataSet: []protocol.SubscriptionData{{Topic: "t", SubString: "*"}},
		}}})
	case protocol.LockBatchMQ, protocol.UnlockBatchMQ:
		return protocol.EncodeBody(&protocol.LockBatchRequestBody{
			ClientID: "c", ConsumerGroup: "g", MQSet: []protocol.MessageQueue{{BrokerName: "broker-a", Topic: "t"}},
		})
	case protocol.BatchAckMessage:
		return protocol.EncodeBody(&protocol.BatchAckMessageRequestBody{
			BrokerName: "broker-a", Acks: []protocol.BatchAck{{ConsumerGroup: "g", Topic: "t"}},
		})
	case protocol.QueryAssignment:
		return protocol.EncodeBody(
			&protocol.QueryAssignmentRequestBody{ClientID: "c", ConsumerGroup: "g", Topic: "t"},
		)
	case protocol.SetMessageRequestMode:
		return protocol.EncodeBody(&protocol.SetMessageRequestModeRequestBody{ConsumerGroup: "g", Topic: "t"})
	case protocol.UpdateAndCreateTopicList:
		return protocol.EncodeBody(&protocol.CreateTopicListRequestBody{TopicConfigList: []protocol.TopicConfig{
			{TopicName: "t", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6},
		}})
	case protocol.UpdateAndCreateSubscriptionGroup:
		return protocol.EncodeBody(&protocol.SubscriptionGroupConfig{GroupName: "g"})
	case protocol.UpdateAndCreateSubscriptionGroupList:
		return protocol.EncodeBody(&protocol.SubscriptionGroupList{
			GroupConfigList: []protocol.SubscriptionGroupConfig{{GroupName: "g"}},
		})
	default:
		return nil
	}
}

// C137 on the native door: every request code × no credentials, a wrong secret, no rights, all rights, a super user.
// What is allowed may fail for other reasons, but not for those.
func TestC137EveryCodeNeedsCredentialsAndRights(t *testing.T) {
	t.Parallel()
	w := startWire(t, guarded(t, guardedFile))
	denied := func(answer *protocol.Command) bool {
		return answer.Code == int32(protocol.NoPermission) &&
			(strings.Contains(answer.Remark, "has no permission to access") ||
				strings.Contains(answer.Remark, "signature") || strings.Contains(answer.Remark, "username cannot be null") ||
				strings.Contains(answer.Remark, "so nobody may"))
	}
	for code := range allRoutes(t, w.svc) {
		need, ok := w.svc.access.rights[code]
		if !ok {
			t.Errorf("%s stands in no line of rightsOf", code)
		}
		h, body := sampleHeader(code), sampleBody(code)
		for _, c := range []struct {
			who  Signer
			deny bool
		}{{Signer{}, true}, {wrong, true}, {bare, need != right{}}, {fit, false}, {root, false}} {
			if answer := w.as(c.who, code, h, body); denied(answer) != c.deny {
				t.Errorf(
					"%s by %q with secret %q: code %d %q",
					code,
					c.who.AccessKey,
					c.who.SecretKey,
					answer.Code,
					answer.Remark,
				)
			}
		}
	}
	for code := range w.svc.access.rights {
		if !allRoutes(t, w.svc)[code] {
			t.Errorf("%s has a line in rightsOf and none in routes.go", code)
		}
	}
}

// The header that the guard decodes is the one that the processor of the code wants.
func TestGuardDecodesWhatProcessorsRead(t *testing.T) {
	t.Parallel()
	w := startWire(t, guarded(t, guardedFile))
	for code := range allRoutes(t, w.svc) {
		if answer := w.as(
			fit,
			code,
			sampleHeader(code),
			sampleBody(code),
		); strings.Contains(
			answer.Remark,
			", want *protocol.",
		) {
			t.Errorf("%s: %s", code, answer.Remark)
		}
	}
}

// C134 C140: rights are those of the topic that is sent to, by single and batch sends, and a refused trace message
// does not disturb the business's.
func TestC134SendsNeedThePubRight(t *testing.T) {
	t.Parallel()
	file := strings.ReplaceAll(guardedFile, "[All]", "[Pub]")
	w := startWire(t, guarded(t, file))
	w.wantCode(protocol.Success, root, protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequestHeader{
		Topic:           "t",
		DefaultTopic:    "TBW102",
		ReadQueueNums:   1,
		WriteQueueNums:  1,
		Perm:            6,
		TopicFilterType: "SINGLE_TAG",
	}, nil)
	w.wantCode(protocol.NoPermission, bare, protocol.SendBatchMessage, sendHeader("t", 0, ""), []byte("x"))
	w.wantCode(protocol.NoPermission, bare, protocol.SendMessage, sampleHeader(protocol.SendMessage), []byte("x"))
	stored := w.as(root, protocol.GetMaxOffset, &protocol.GetMaxOffsetRequestHeader{Topic: "t"}, nil)
	if at := stored.Ext.Value("offset"); at != "0" {
		t.Errorf("the queue ends at %q after refused sends", at)
	}
	w.wantCode(protocol.Success, fit, protocol.SendMessageV2, sendHeader("t", 0, ""), []byte("business"))
	w.wantCode(
		protocol.NoPermission,
		fit,
		protocol.SendMessageV2,
		sendHeader("RMQ_SYS_TRACE_TOPIC", 0, ""),
		[]byte("trace"),
	)
	w.wantCode(protocol.Success, fit, protocol.SendMessageV2, sendHeader("t", 0, ""), []byte("business"))
	pull := &protocol.PullMessageRequestHeader{ConsumerGroup: "g", Topic: "t", MaxMsgNums: 1, Subscription: "*"}
	w.wantCode(protocol.NoPermission, fit, protocol.PullMessage, pull, nil)
}

// Topics of retries and dead letters belong to their group, whoever names them.
func TestRetryRightsFollowTheGroup(t *testing.T) {
	t.Parallel()
	const sub = `
users:
  - {username: root, password: root-secret, userType: Super}
  - {username: fit, password: fit-secret}
acls:
  - subject: User:fit
    policies:
      - entries: [{resource: "Group:g", actions: [Sub], decision: Allow}, {resource: "Topic:*", actions: [Pub], decision: Allow}]
`
	w := startWire(t, guarded(t, sub))
	for _, c := range []struct {
		topic, group string
		ok           bool
	}{
		{"%RETRY%g", "g", true},
		{"%DLQ%g", "g", true},
		{"%RETRY%other", "g", false},
		{"%RETRY%g_x", "g", false},
		{"%RETRY%g", "other", false},
		{"t", "g", false},
	} {
		answer := w.as(fit, protocol.PullMessage, &protocol.PullMessageRequestHeader{
			ConsumerGroup: c.group, Topic: c.topic, MaxMsgNums: 1, Subscription: "*",
		}, nil)
		if refused := strings.Contains(answer.Remark, "has no permission to access"); refused == c.ok {
			t.Errorf("pull %s by %s: code %d %s", c.topic, c.group, answer.Code, answer.Remark)
		}
		answer = w.as(fit, protocol.SendMessageV2, sendHeader(c.topic, 0, ""), []byte("x"))
		want := c.topic == "%RETRY%g" || c.topic == "%DLQ%g" || c.topic == "t"
		if refused := strings.Contains(answer.Remark, "has no permission to access"); refused == want {
			t.Errorf("send to %s: code %d %s", c.topic, answer.Code, answer.Remark)
		}
	}
	ack := &protocol.AckMessageRequestHeader{ConsumerGroup: "g", Topic: "%RETRY%g_t"}
	if answer := w.as(fit, protocol.AckMessage, ack, nil); strings.Contains(answer.Remark, "has no permission") {
		t.Errorf("ack: %s", answer.Remark)
	}
}

// A decision about a half message needs the right to send to the topic that it is going to, whatever the request names;
// clients before 5.0 name none. So do replies, but for the topic that is there for them.
func TestDecisionsAndRepliesNeedThePubRight(t *testing.T) {
	t.Parallel()
	const file = `
users:
  - {username: root, password: root-secret, userType: Super}
  - {username: fit, password: fit-secret}
  - {username: bare, password: bare-secret}
acls:
  - subject: User:fit
    policies:
      - entries: [{resource: "Topic:own", actions: [Pub], decision: Allow}]
`
	w := startWire(t, guarded(t, file))
	for _, c := range []struct {
		topic, named string
		who          Signer
		want         protocol.ResponseCode
	}{
		{"foreign", "own", fit, protocol.NoPermission},
		{"foreign", "foreign", fit, protocol.NoPermission},
		{"foreign", "", fit, protocol.NoPermission},
		{"own", "", bare, protocol.NoPermission},
		{"own", "own", fit, protocol.Success},
		{"own", "", fit, protocol.Success},
		{"foreign", "foreign", root, protocol.Success},
	} {
		half := sendHeader(c.topic, 0, "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01"+c.topic+c.named+"\x02")
		var sent protocol.SendMessageResponseHeader
		answer := w.answerTo(protocol.Success, root, protocol.SendMessageV2, half, []byte("x"))
		if err := sent.DecodeExt(&answer.Ext); err != nil {
			t.Fatal(err)
		}
		_, at, err := message.ParseOffsetMsgID(sent.MsgID)
		if err != nil {
			t.Fatal(err)
		}
		for _, position := range []int64{int64(at), -1} { // -1: found by topic and id, as the gRPC door does
			end := &protocol.EndTransactionRequestHeader{
				Topic: c.named, ProducerGroup: "p", TranStateTableOffset: sent.QueueOffset, CommitLogOffset: position,
				CommitOrRollback: message.TransactionCommit, MsgID: "u", TransactionID: c.topic + c.named,
			}
			if position >= 0 || c.named == c.topic {
				w.wantCode(c.want, c.who, protocol.EndTransaction, end, nil)
			}
		}
	}
	for _, c := range []struct {
		topic  string
		who    Signer
		denied bool
	}{
		{"own", bare, true},
		{"own", fit, false},
		{"DefaultCluster_REPLY_TOPIC", bare, false},
		{"DefaultCluster_REPLY_TOPIC", Signer{}, true},
	} {
		answer := w.as(c.who, protocol.SendReplyMessageV2, sendHeader(c.topic, 0, ""), []byte("x"))
		if denied := answer.Code == int32(protocol.NoPermission); denied != c.denied {
			t.Errorf("reply to %s by %q: code %d %s", c.topic, c.who.AccessKey, answer.Code, answer.Remark)
		}
	}
}

// C142 C143: settings are changed by whom the cluster may be governed by, and only those on the safe list; a request
// with one bad key changes nothing.
func TestC142ConfigUpdates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*config.Config)
		who    Signer
		body   string
		want   protocol.ResponseCode
	}{
		{guarded(t, guardedFile), Signer{}, "fileReservedTime=5", protocol.NoPermission},
		{guarded(t, guardedFile), bare, "fileReservedTime=5", protocol.NoPermission},
		{guarded(t, guardedFile), root, "fileReservedTime=5", protocol.Success},
		{nil, Signer{}, "fileReservedTime=5\nstorePathRootDir=/tmp/x", protocol.NoPermission},
		{nil, Signer{}, "rocketmqHome=/tmp/x;curl evil", protocol.Success}, // without effect, as of the original's keys
		{nil, Signer{}, "kvConfigPath=/tmp/x\nlistenPort=1", protocol.NoPermission},
		{nil, Signer{}, "authenticationEnabled=false", protocol.NoPermission},
		{nil, Signer{}, "authFile=/tmp/x", protocol.NoPermission},
		{nil, Signer{}, "transactionTimeout=1\nauthFile=/tmp/x", protocol.NoPermission},
		{nil, Signer{}, "transactionTimeout=1", protocol.InvalidParameter}, // there is transactionTimeOut
		{nil, Signer{}, "transactionTimeOut=soon", protocol.InvalidParameter},
	} {
		w := startWire(t, c.change)
		before := w.svc.node.settings.load()
		for _, code := range []protocol.Code{protocol.UpdateBrokerConfig, protocol.UpdateNamesrvConfig} {
			w.wantCode(c.want, c.who, code, nil, []byte(c.body))
		}
		after := w.svc.node.settings.load()
		if unchanged := reflect.DeepEqual(
			before,
			after,
		); unchanged == strings.Contains(c.body, "Time=5") &&
			c.want == protocol.Success {
			t.Errorf("%q: unchanged is %v", c.body, unchanged)
		}
		if c.want != protocol.Success && !reflect.DeepEqual(before, after) {
			t.Errorf("%q changed something", c.body)
		}
	}
}

// The first user switches security on for everybody, and has to be one who can go on; secrets are not among the
// settings that are shown; users survive a restart.
func TestTheFirstUserClosesTheDoor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	same := func(cfg *config.Config) {
		cfg.Store.Dir = dir
		cfg.Auth.InnerCredentials = ""
	}
	user := func(u auth.User) []byte { info := protocol.UserInfo(u); return protocol.EncodeBody(&info) }
	name := func(n string) *protocol.CreateUserRequestHeader {
		return &protocol.CreateUserRequestHeader{Username: n}
	}
	t.Run("create", func(t *testing.T) {
		w := startWire(t, same)
		w.refused(
			protocol.NoPermission,
			protocol.AuthCreateUser,
			name("fit"),
			user(auth.User{Password: "fit-secret"}),
		)
		w.ok(protocol.AuthCreateUser, name("root"), user(auth.User{Password: "root-secret", UserType: "super"}))
		w.refused(protocol.NoPermission, protocol.AuthCreateUser, name("x"), user(auth.User{Password: "x"}))
		w.wantCode(
			protocol.Success,
			root,
			protocol.AuthCreateUser,
			name("fit"),
			user(auth.User{Password: "fit-secret"}),
		)
		w.wantCode(protocol.NoPermission, root, protocol.AuthDeleteUser,
			&protocol.DeleteUserRequestHeader{Username: "root"}, nil)
		w.wantCode(protocol.NoPermission, root, protocol.AuthUpdateUser,
			&protocol.UpdateUserRequestHeader{Username: "root"}, user(auth.User{UserStatus: "disable"}))
		rule := &protocol.AclInfo{Policies: []protocol.PolicyInfo{{Entries: []protocol.PolicyEntryInfo{
			{Actions: []string{"Update", "Get"}, Decision: "Allow", Resource: "Cluster:*"},
		}}}}
		w.wantCode(protocol.Success, root, protocol.AuthCreateACL,
			&protocol.CreateAclRequestHeader{Subject: "User:fit"}, protocol.EncodeBody(rule))
	})
	t.Run("restart", func(t *testing.T) {
		w := startWire(t, same)
		w.refused(protocol.NoPermission, protocol.AuthListUser, &protocol.ListUsersRequestHeader{}, nil)
		all, err := protocol.DecodeBodies[protocol.UserInfo](w.as(fit, protocol.AuthListUser, nil, nil).Body)
		if err != nil || len(all) != 2 || all[1].Username != "root" || all[1].UserType != "Super" {
			t.Errorf("users %+v, %v", all, err)
		}
		got := body[protocol.AclInfo](t, w.as(fit, protocol.AuthGetACL,
			&protocol.GetAclRequestHeader{Subject: "User:fit"}, nil))
		if len(got.Policies) != 1 || got.Policies[0].PolicyType != "Custom" ||
			got.Policies[0].Entries[0].Resource != "Cluster:*" {
			t.Errorf("rules %+v", got)
		}
		// fit governs the cluster, but makes no super users.
		w.wantCode(
			protocol.NoPermission,
			fit,
			protocol.AuthCreateUser,
			name("x"),
			user(auth.User{Password: "x", UserType: "Super"}),
		)
		w.wantCode(protocol.NoPermission, fit, protocol.AuthUpdateUser,
			&protocol.UpdateUserRequestHeader{Username: "root"}, user(auth.User{Password: "mine"}))
		w.wantCode(
			protocol.Success,
			root,
			protocol.AuthDeleteUser,
			&protocol.DeleteUserRequestHeader{Username: "fit"},
			nil,
		)
		w.wantCode(
			protocol.NoPermission,
			root,
			protocol.AuthGetACL,
			&protocol.GetAclRequestHeader{Subject: "User:fit"},
			nil,
		)
	})
}

// A broker with credentials registers with a name server that asks for them, and is refused without.
func TestRegistrationIsSigned(t *testing.T) {
	t.Parallel()
	file := guarded(t, guardedFile)
	n := startNames(t, func(cfg *config.Config) { cfg.Roles = []string{config.RoleNameServer}; file(cfg) })
	secret, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	b := startWire(t, func(cfg *config.Config) {
		cfg.Roles, cfg.Identity.NamesrvAddrs = []string{config.RoleBroker}, []string{n.addr}
		cfg.Auth.InnerCredentials = string(secret)
	})
	n.eventually("the broker", func() bool {
		answer := n.as(root, protocol.GetBrokerClusterInfo, nil, nil)
		return strings.Contains(string(answer.Body), b.svc.self.brokerName)
	})
	shown := string(b.as(root, protocol.GetBrokerConfig, nil, nil).Body)
	if strings.Contains(shown, root.SecretKey) ||
		!strings.Contains(shown, "innerClientAuthenticationCredentials=(secret)") {
		t.Error("the secret is shown, or not that there is one")
	}
}

// Users and rules over the wire, as mqadmin's getUser, updateUser, copyUser, updateAcl, deleteAcl and listAcl ask.
func TestUsersOverTheWire(t *testing.T) {
	t.Parallel()
	w := startWire(t, guarded(t, guardedFile))
	info := func(name string) *protocol.UserInfo {
		answer := w.answerTo(
			protocol.Success,
			root,
			protocol.AuthGetUser,
			&protocol.GetUserRequestHeader{Username: name},
			nil,
		)
		if len(answer.Body) == 0 {
			return nil
		}
		return body[protocol.UserInfo](t, answer)
	}
	put := func(u protocol.UserInfo) []byte { return protocol.EncodeBody(&u) }
	if u := info("new"); u != nil {
		t.Errorf("before it is there: %+v", u)
	}
	w.wantCode(protocol.InvalidParameter, root, protocol.AuthGetUser, &protocol.GetUserRequestHeader{}, nil)
	w.wantCode(protocol.Success, root, protocol.AuthCreateUser,
		&protocol.CreateUserRequestHeader{Username: "new"}, put(protocol.UserInfo{Password: "p1"}))
	w.wantCode(protocol.NoPermission, root, protocol.AuthCreateUser,
		&protocol.CreateUserRequestHeader{Username: "new"}, put(protocol.UserInfo{Password: "p1"}))
	w.wantCode(protocol.Success, root, protocol.AuthUpdateUser,
		&protocol.UpdateUserRequestHeader{Username: "new"}, put(protocol.UserInfo{Password: "p2"}))
	if u := info(
		"new",
	); u == nil ||
		*u != (protocol.UserInfo{Password: "p2", UserStatus: "enable", UserType: "Normal", Username: "new"}) {
		t.Errorf("after its change: %+v", u)
	}
	w.wantCode(protocol.NoPermission, root, protocol.AuthUpdateUser, // it stands in the file
		&protocol.UpdateUserRequestHeader{Username: "fit"}, put(protocol.UserInfo{Password: "p"}))
	rule := func(resource, action string) []byte {
		return protocol.EncodeBody(
			&protocol.AclInfo{Policies: []protocol.PolicyInfo{{Entries: []protocol.PolicyEntryInfo{
				{Resource: resource, Actions: []string{action}, Decision: "Allow"},
			}}}},
		)
	}
	subject := &protocol.UpdateAclRequestHeader{Subject: "User:new"}
	w.wantCode(protocol.NoPermission, root, protocol.AuthUpdateACL, subject, rule("Topic", "Pub"))
	w.wantCode(protocol.Success, root, protocol.AuthUpdateACL, subject, rule("Topic:a", "Pub"))
	w.wantCode(protocol.Success, root, protocol.AuthUpdateACL, subject, rule("Topic:b", "Pub"))
	w.wantCode(protocol.Success, root, protocol.AuthUpdateACL, subject, rule("Topic:a", "Sub"))
	listed := func(resource string) string {
		return string(w.answerTo(protocol.Success, root, protocol.AuthListACL,
			&protocol.ListAclsRequestHeader{SubjectFilter: "new", ResourceFilter: resource}, nil).Body)
	}
	const both = `[{"policies":[{"entries":[{"actions":["Sub"],"decision":"Allow","resource":"Topic:a"},` +
		`{"actions":["Pub"],"decision":"Allow","resource":"Topic:b"}],"policyType":"Custom"}],"subject":"User:new"}]`
	if got := listed(""); got != both {
		t.Errorf("rules %s", got)
	}
	if got := listed("Topic:b"); strings.Contains(got, "Topic:a") || !strings.Contains(got, "Topic:b") {
		t.Errorf("rules for b: %s", got)
	}
	one := &protocol.DeleteAclRequestHeader{Subject: "User:new", Resource: "Topic:a"}
	w.wantCode(protocol.Success, root, protocol.AuthDeleteACL, one, nil)
	if got := listed(""); strings.Contains(got, "Topic:a") {
		t.Errorf("rules after a was deleted: %s", got)
	}
	w.wantCode(
		protocol.Success,
		root,
		protocol.AuthDeleteACL,
		&protocol.DeleteAclRequestHeader{Subject: "User:new"},
		nil,
	)
	w.wantCode(protocol.NoPermission, root, protocol.AuthDeleteACL, one, nil)
	w.wantCode(protocol.Success, root, protocol.AuthUpdateUser,
		&protocol.UpdateUserRequestHeader{Username: "new"}, put(protocol.UserInfo{UserStatus: "disable"}))
	w.wantCode(
		protocol.NoPermission,
		Signer{"new", "p2"},
		protocol.HeartBeat,
		nil,
		sampleBody(protocol.HeartBeat),
	)
}
