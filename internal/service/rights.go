// SPDX-License-Identifier: Apache-2.0

package service

import (
	"reflect"
	"strings"

	"github.com/roquetmq/roquet/internal/auth"
	p "github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// right is what a request needs: any of the actions with each topic and each group that it names, or with the
// cluster. An empty one asks for credentials only.
type right struct {
	topic, group, cluster auth.Actions
	optional              bool // old clients may name nothing
}

// rightsOf is the table of what each request code needs. A code without a place here needs Cluster Update.
// Source: DefaultAuthorizationContextBuilder.java, RocketMQAction on the header classes.
// Known differences: codes that have no header class there need nothing but credentials, configuration changes and
// lists of everything among them; here they need the cluster's rights. Who may consume may ask for offsets and for
// messages by key or id, which is Get there, so that consumers get along with Sub. Replies need credentials only there,
// and go to any topic; here that is so for the cluster's reply topic.
//
//lint:long the table of rights
func rightsOf() map[p.Code]right {
	const sub, get = auth.Sub, auth.Get
	rights := map[p.Code]right{}
	for _, line := range []struct {
		need  right
		codes []p.Code
	}{
		{right{topic: auth.Pub}, []p.Code{
			p.SendMessage, p.SendMessageV2, p.SendBatchMessage, p.RecallMessage, p.SendReplyMessage,
			p.SendReplyMessageV2,
		}},
		{right{topic: auth.Pub, optional: true}, []p.Code{p.EndTransaction}}, // then the half message does
		{right{}, []p.Code{p.CheckClientConfig}},                             // it compiles an expression
		{right{topic: sub, group: sub}, []p.Code{
			p.PullMessage, p.LitePullMessage, p.ConsumerSendMsgBack, p.LockBatchMQ, p.UnlockBatchMQ, p.PopMessage,
			p.AckMessage, p.BatchAckMessage, p.ChangeMessageInvisibleTime, p.PeekMessage, p.Notification,
			p.QueryAssignment, p.ConsumeMessageDirectly,
		}},
		{right{topic: sub, group: sub, optional: true}, []p.Code{p.HeartBeat, p.UnregisterClient}}, // producers'
		{right{topic: sub | get, group: sub | get}, []p.Code{
			p.QueryConsumerOffset, p.GetConsumerListByGroup, p.GetMaxOffset, p.GetMinOffset, p.SearchOffsetByTimestamp,
			p.GetEarliestMsgStoreTime, p.QueryMessage, p.PollingInfo, p.GetSubscriptionGroupConfig,
		}},
		{right{topic: sub | get, optional: true}, []p.Code{p.ViewMessageByID}}, // then the message does
		{right{topic: sub | auth.Update, group: sub | auth.Update}, []p.Code{p.UpdateConsumerOffset}},
		{right{topic: auth.Pub | sub | get}, []p.Code{p.GetRouteInfoByTopic, p.GetTopicConfig}},
		{right{topic: get, group: get}, []p.Code{
			p.GetTopicStatsInfo, p.QueryCorrectionOffset, p.GetConsumerConnectionList, p.GetConsumeStats,
			p.QueryTopicConsumeByWho, p.QueryTopicsByConsumer, p.QuerySubscriptionByConsumer, p.QueryConsumeTimeSpan,
			p.QueryConsumeQueue, p.GetConsumerRunningInfo, p.InvokeBrokerToGetConsumerStatus,
		}},
		{right{topic: auth.Create, group: auth.Create}, []p.Code{
			p.UpdateAndCreateTopic, p.UpdateAndCreateTopicList, p.UpdateAndCreateSubscriptionGroup,
			p.UpdateAndCreateSubscriptionGroupList,
		}},
		{right{topic: auth.Delete, group: auth.Delete}, []p.Code{p.DeleteTopicInBroker, p.DeleteSubscriptionGroup}},
		{right{topic: auth.Update, group: auth.Update}, []p.Code{
			p.ResumeCheckHalfMessage, p.SetMessageRequestMode, p.UpdateAndGetGroupForbidden,
			p.InvokeBrokerToResetOffset, p.CloneGroupOffset,
		}},
		{right{cluster: get | auth.List}, []p.Code{
			p.GetAllTopicConfig, p.GetSystemTopicListFromBroker, p.GetAllSubscriptionGroupConfig,
			p.GetAllTopicListFromNameserver, p.GetTopicsByCluster, p.GetSystemTopicListFromNS, p.GetUnitTopicList,
			p.GetHasUnitSubTopicList, p.GetHasUnitSubUnunitTopicList,
		}},
		{right{cluster: get}, []p.Code{
			p.GetAllMessageRequestMode, p.GetAllConsumerOffset, p.GetProducerConnectionList,
			p.GetAllProducerInfo, p.GetBrokerConsumeStats, p.ViewBrokerStatsData, p.GetAllDelayOffset,
			p.GetTimerCheckPoint, p.GetTimerMetrics, p.GetBrokerRuntimeInfo, p.GetBrokerHAStatus,
			p.GetBrokerConfig, p.AuthGetUser, p.AuthListUser, p.AuthGetACL, p.AuthListACL,
			p.GetBrokerClusterInfo, p.GetBrokerMemberGroup, p.QueryDataVersion, p.GetKVConfig,
			p.GetKVListByNamespace, p.GetNamesrvConfig,
		}},
		{right{cluster: auth.Update}, []p.Code{
			p.CleanUnusedTopic, p.CleanExpiredConsumeQueue, p.DeleteExpiredCommitLog, p.UpdateBrokerConfig,
			p.BackupStore,
			p.AuthCreateUser, p.AuthUpdateUser, p.AuthDeleteUser, p.AuthCreateACL, p.AuthUpdateACL, p.AuthDeleteACL,
			p.RegisterBroker, p.UnregisterBroker, p.BrokerHeartbeat, p.WipeWritePermOfBroker, p.AddWritePermOfBroker,
			p.DeleteTopicInNamesrv, p.RegisterTopicInNamesrv, p.PutKVConfig, p.DeleteKVConfig, p.UpdateNamesrvConfig,
		}},
	} {
		for _, code := range line.codes {
			rights[code] = line.need
		}
	}
	return rights
}

// needs is the topics and groups that one call is about.
type needs struct{ topics, groups []string }

// isRetryOfGroup tells whether a retry topic's group is one that is asked for besides. What was popped is settled by
// the name of its retry topic, which goes on with the topic behind the group.
func (n *needs) isRetryOfGroup(code p.Code, name string) bool {
	settles := code == p.AckMessage || code == p.BatchAckMessage || code == p.ChangeMessageInvisibleTime
	for _, group := range n.groups {
		rest, ok := strings.CutPrefix(name, auth.OfGroup(group).Name)
		if ok && (rest == "" || settles && (rest[0] == '_' || rest[0] == '+')) {
			return true
		}
	}
	return false
}

// read takes the names out of the header, which it decodes for who comes after, or else out of the body.
func (n *needs) read(c *remoting.Call) error {
	if c.Header == nil && c.Ext != nil {
		if h := p.RequestHeader(c.Code); h != nil {
			if err := h.DecodeExt(c.Ext); err != nil {
				return err
			}
			c.Header = h
		}
	}
	var from any = c.Header
	var err error
	if c.Header == nil {
		from, err = namesInBody(c)
	}
	if err == nil && from != nil {
		n.collect(reflect.ValueOf(from))
	}
	return err
}

// namesInBody decodes the body of a code that names topics and groups there.
func namesInBody(c *remoting.Call) (any, error) {
	switch c.Code {
	case p.HeartBeat:
		return p.DecodeBody[p.HeartbeatData](c.Body)
	case p.LockBatchMQ, p.UnlockBatchMQ:
		return p.DecodeBody[p.LockBatchRequestBody](c.Body)
	case p.BatchAckMessage:
		return p.DecodeBody[p.BatchAckMessageRequestBody](c.Body)
	case p.QueryAssignment:
		return p.DecodeBody[p.QueryAssignmentRequestBody](c.Body)
	case p.SetMessageRequestMode:
		return p.DecodeBody[p.SetMessageRequestModeRequestBody](c.Body)
	case p.UpdateAndCreateTopicList:
		return p.DecodeBody[p.CreateTopicListRequestBody](c.Body)
	case p.UpdateAndCreateSubscriptionGroup:
		return p.DecodeBody[p.SubscriptionGroupConfig](c.Body)
	case p.UpdateAndCreateSubscriptionGroupList:
		return p.DecodeBody[p.SubscriptionGroupList](c.Body)
	default:
		return nil, nil //nolint:nilnil // it names nothing
	}
}

// collect finds the names by what headers and bodies call them. A producer's group is a name without rights, and so is
// the group that offsets are copied from.
func (n *needs) collect(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			n.collect(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			n.collect(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			switch name, f := v.Type().Field(i).Name, v.Field(i); name {
			case "Topic", "OriginTopic", "TopicName", "TopicList":
				n.topics = appendNames(n.topics, f, ";")
			case "ConsumerGroup", "Group", "GroupName", "DestGroup", "CompareGroup", "FilterGroups":
				n.groups = appendNames(n.groups, f, ",")
			case "ConsumerDataSet", "SubscriptionDataSet", "MQSet", "Acks", "TopicConfigList", "GroupConfigList":
				n.collect(f)
			}
		}
	}
}

func appendNames(names []string, f reflect.Value, separator string) []string {
	if f.Kind() == reflect.String && f.String() != "" {
		return append(names, strings.Split(f.String(), separator)...)
	}
	return names
}
