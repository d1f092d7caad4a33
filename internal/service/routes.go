// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"

	p "github.com/roquetmq/roquet/internal/protocol"
	r "github.com/roquetmq/roquet/internal/remoting"
)

// Short names for what processors get and give.
type (
	call   = r.Call
	answer = r.Response
)

// headerOf is a pointer to a header.
type headerOf[H any] interface {
	*H
	p.Header
}

type bodyOf[T any] interface {
	*T
	p.Body
}

// handle, handleAsync and handleBody are remoting's Handle, HandleAsync and HandleBody of what needs no context.
func handle[H any, P headerOf[H]](fn func(c *call, h P) (answer, error)) r.Processor {
	return r.Handle(func(_ context.Context, c *call, h P) (answer, error) { return fn(c, h) })
}

func handleAsync[H any, P headerOf[H]](fn func(c *call, h P)) r.Processor {
	return r.HandleAsync(func(_ context.Context, c *call, h P) { fn(c, h) })
}

func handleBody(fn func(c *call) (answer, error)) r.Processor {
	return r.HandleBody(func(_ context.Context, c *call) (answer, error) { return fn(c) })
}

// handleText is handleBody of what gets the body decoded.
func handleText[T any, B bodyOf[T]](fn func(c *call, body *T) (answer, error)) r.Processor {
	return handleBody(func(c *call) (answer, error) {
		body, err := p.DecodeBody[T, B](c.Body)
		if err != nil {
			return answer{}, err
		}
		return fn(c, body)
	})
}

// handleTextAsync is handleText of what ends the call itself.
func handleTextAsync[T any, B bodyOf[T]](fn func(c *call, body *T)) r.Processor {
	return func(_ context.Context, c *call) {
		body, err := p.DecodeBody[T, B](c.Body)
		if err != nil {
			c.Fail(err)
			return
		}
		fn(c, body)
	}
}

// at is one line of the table: a code, the lane that bounds it, its lane on the fast port (nil: refused
// there, as the original refuses consumers' reads), and what answers it.
func at(code p.Code, lane, fast *r.Lane, processor r.Processor) r.Route {
	return r.Route{Code: code, Lane: lane, FastLane: fast, Processor: processor}
}

// brokerRoutes is every request code that a broker serves. A code that is in no table is answered
// REQUEST_CODE_NOT_SUPPORTED.
//
//lint:long the table of request codes
func (n *node) brokerRoutes(l, fast *lanes) []r.Route {
	return []r.Route{
		// Producers
		at(p.SendMessage, l.send, fast.send, handleAsync(n.sends.send)),
		at(p.SendMessageV2, l.send, fast.send, handleAsync(n.sends.send)),
		at(p.SendBatchMessage, l.send, fast.send, handleAsync(n.sends.sendBatch)),

		at(p.EndTransaction, l.send, fast.send, handleAsync(n.transactions.end)),
		at(p.RecallMessage, l.send, fast.send, handleAsync(n.recalls.recall)),
		at(p.SendReplyMessage, l.send, fast.send, handleAsync(n.replies.reply)),
		at(p.SendReplyMessageV2, l.send, fast.send, handleAsync(n.replies.reply)),
		at(p.ResumeCheckHalfMessage, l.admin, fast.admin, handleAsync(n.transactions.resume)),

		// Consumers
		at(p.PullMessage, l.pull, nil, handleAsync(n.pulls.pull)),
		at(p.LitePullMessage, l.pull, nil, handleAsync(n.pulls.litePull)),
		at(p.ConsumerSendMsgBack, l.send, fast.send, n.pops.sendBack(handleAsync(n.sends.sendBack))),
		at(p.QueryConsumerOffset, l.client, fast.client, handle(n.offsets.query)),
		at(p.UpdateConsumerOffset, l.client, fast.client, handle(n.offsets.update)),
		at(p.GetConsumerListByGroup, l.client, fast.client, handle(n.clients.consumerList)),
		at(p.LockBatchMQ, l.client, fast.client, handleText(n.clients.lock)),
		at(p.UnlockBatchMQ, l.client, fast.client, handleText(n.clients.unlock)),
		at(p.GetMaxOffset, l.client, fast.client, handle(n.offsets.maximum)),
		at(p.GetMinOffset, l.client, fast.client, handle(n.offsets.minimum)),
		at(p.SearchOffsetByTimestamp, l.query, fast.query, handle(n.offsets.search)),
		at(p.GetEarliestMsgStoreTime, l.query, fast.query, handle(n.offsets.earliest)),
		at(p.QueryMessage, l.query, fast.query, handle(n.queries.byKey)),
		at(p.ViewMessageByID, l.query, fast.query, handle(n.queries.byOffset)),

		// Consumers that share queues
		at(p.PopMessage, l.pull, nil, handleAsync(n.pops.pop)),
		at(p.AckMessage, l.ack, fast.ack, handleAsync(n.pops.ack)),
		at(p.BatchAckMessage, l.ack, fast.ack, n.pops.ackBatch),
		at(p.ChangeMessageInvisibleTime, l.ack, fast.ack, n.pops.renewReceipt(handleAsync(n.pops.changeInvisible))),
		at(p.Notification, l.pull, nil, handleAsync(n.pops.notification)),
		at(p.PeekMessage, l.pull, nil, handle(n.pops.peek)),
		at(p.PollingInfo, l.client, fast.client, handle(n.pops.pollingInfo)),
		at(p.QueryAssignment, l.admin, fast.admin, r.HandleBody(n.assigns.query)),
		at(p.SetMessageRequestMode, l.admin, fast.admin, handleTextAsync(n.assigns.setMode)),
		at(p.GetAllMessageRequestMode, l.admin, fast.admin, handleBody(n.assigns.allModes)),

		// Both
		at(p.HeartBeat, l.client, fast.client, handleTextAsync(n.clients.heartBeat)),
		at(p.UnregisterClient, l.client, fast.client, handle(n.clients.unregister)),
		at(p.CheckClientConfig, l.client, fast.client, handleText(n.clients.checkConfig)),

		// Topics
		at(p.UpdateAndCreateTopic, l.admin, fast.admin, handleAsync(n.topics.update)),
		at(p.UpdateAndCreateTopicList, l.admin, fast.admin, handleTextAsync(n.topics.updateList)),
		at(p.DeleteTopicInBroker, l.admin, fast.admin, handleAsync(n.topics.remove)),
		at(p.GetTopicConfig, l.admin, fast.admin, handle(n.topics.config)),
		at(p.GetAllTopicConfig, l.admin, fast.admin, handle(n.topics.configs)),
		at(p.GetTopicStatsInfo, l.admin, fast.admin, handle(n.topics.statistics)),
		at(p.GetSystemTopicListFromBroker, l.admin, fast.admin, handleBody(n.topics.system)),
		at(p.CleanUnusedTopic, l.admin, fast.admin, handleBody(n.topics.cleanUnused)),
		at(p.CleanExpiredConsumeQueue, l.admin, fast.admin, handleBody(n.topics.cleanUnused)),

		// Groups
		at(p.UpdateAndCreateSubscriptionGroup, l.admin, fast.admin, handleTextAsync(n.groups.update)),
		at(p.UpdateAndCreateSubscriptionGroupList, l.admin, fast.admin, handleTextAsync(n.groups.updateList)),
		at(p.DeleteSubscriptionGroup, l.admin, fast.admin, handleAsync(n.groups.remove)),
		at(p.GetAllSubscriptionGroupConfig, l.admin, fast.admin, handle(n.groups.configs)),
		at(p.GetSubscriptionGroupConfig, l.admin, fast.admin, handle(n.groups.config)),
		at(p.UpdateAndGetGroupForbidden, l.admin, fast.admin, handleAsync(n.groups.forbidden)),
		at(p.GetAllConsumerOffset, l.admin, fast.admin, handleBody(n.offsets.all)),
		at(p.InvokeBrokerToResetOffset, l.admin, fast.admin, handleAsync(n.resets.reset)),
		at(p.CloneGroupOffset, l.admin, fast.admin, handle(n.resets.clone)),
		at(p.QueryCorrectionOffset, l.admin, fast.admin, handle(n.resets.correction)),

		// Who is connected, how far is everybody
		at(p.GetConsumerConnectionList, l.admin, fast.admin, handle(n.observe.consumerConnections)),
		at(p.GetProducerConnectionList, l.admin, fast.admin, handle(n.observe.producerConnections)),
		at(p.GetAllProducerInfo, l.admin, fast.admin, handleBody(n.observe.producers)),
		at(p.GetConsumeStats, l.admin, fast.admin, handle(n.observe.consumeStats)),
		at(p.GetBrokerConsumeStats, l.admin, fast.admin, handle(n.observe.allConsumeStats)),
		at(p.QueryTopicConsumeByWho, l.admin, fast.admin, handle(n.observe.groupsOfTopic)),
		at(p.QueryTopicsByConsumer, l.admin, fast.admin, handle(n.observe.topicsOfGroup)),
		at(p.QuerySubscriptionByConsumer, l.admin, fast.admin, handle(n.observe.subscription)),
		at(p.QueryConsumeTimeSpan, l.admin, fast.admin, handle(n.observe.timeSpan)),
		at(p.ViewBrokerStatsData, l.admin, fast.admin, handle(n.observe.statistics)),
		at(p.QueryConsumeQueue, l.query, fast.query, handle(n.queries.consumeQueue)),
		at(p.GetConsumerRunningInfo, l.admin, fast.admin, handleAsync(n.relays.runningInfo)),
		at(p.ConsumeMessageDirectly, l.admin, fast.admin, handleAsync(n.relays.consumeDirectly)),
		at(p.InvokeBrokerToGetConsumerStatus, l.admin, fast.admin, handleAsync(n.relays.status)),

		// The process
		at(p.GetBrokerRuntimeInfo, l.admin, fast.admin, handleBody(n.self.runtimeInfo)),
		at(p.GetAllDelayOffset, l.admin, fast.admin, handleBody(n.timers.delayOffsets)),
		at(p.GetTimerCheckPoint, l.admin, fast.admin, handleBody(n.timers.checkPoint)),
		at(p.GetTimerMetrics, l.admin, fast.admin, handleBody(n.timers.metrics)),
		at(p.DeleteExpiredCommitLog, l.admin, fast.admin, r.HandleBody(n.self.deleteExpired)),
		at(p.GetBrokerHAStatus, l.admin, fast.admin, handleBody(n.self.haStatus)),
		at(p.GetBrokerConfig, l.admin, fast.admin, handleBody(n.self.settings.show)),
		at(p.UpdateBrokerConfig, l.admin, fast.admin, handleBody(n.self.settings.update)),
		at(p.BackupStore, l.admin, fast.admin, handleBody(n.backups.permit)),

		// Users and what they may do
		at(p.AuthCreateUser, l.admin, fast.admin, handle(n.users.create)),
		at(p.AuthUpdateUser, l.admin, fast.admin, handle(n.users.update)),
		at(p.AuthDeleteUser, l.admin, fast.admin, handle(n.users.remove)),
		at(p.AuthGetUser, l.admin, fast.admin, handle(n.users.get)),
		at(p.AuthListUser, l.admin, fast.admin, handle(n.users.list)),
		at(p.AuthCreateACL, l.admin, fast.admin, handle(n.users.createACL)),
		at(p.AuthUpdateACL, l.admin, fast.admin, handle(n.users.updateACL)),
		at(p.AuthDeleteACL, l.admin, fast.admin, handle(n.users.removeACL)),
		at(p.AuthGetACL, l.admin, fast.admin, handle(n.users.getACL)),
		at(p.AuthListACL, l.admin, fast.admin, handle(n.users.listACL)),
	}
}

// namesRoutes is every request code that a name server serves.
//
//lint:long the table of request codes
func (n *names) namesRoutes(l, fast *lanes) []r.Route {
	return []r.Route{
		at(p.GetRouteInfoByTopic, l.names, fast.names, handle(n.lookups.route)),
		at(p.GetBrokerClusterInfo, l.names, fast.names, handleBody(n.lookups.clusterInfo)),
		at(p.GetAllTopicListFromNameserver, l.names, fast.names, handleBody(n.lookups.list(n.routes.Topics))),
		at(p.GetTopicsByCluster, l.names, fast.names, handle(n.lookups.topicsByCluster)),
		at(p.GetSystemTopicListFromNS, l.names, fast.names, handleBody(n.lookups.systemTopics)),
		at(p.GetUnitTopicList, l.names, fast.names, handleBody(n.lookups.list(n.routes.UnitTopics))),
		at(p.GetHasUnitSubTopicList, l.names, fast.names, handleBody(n.lookups.list(n.routes.UnitSubTopics))),
		at(
			p.GetHasUnitSubUnunitTopicList,
			l.names,
			fast.names,
			handleBody(n.lookups.list(n.routes.UnitSubOnlyTopics)),
		),
		at(p.GetBrokerMemberGroup, l.names, fast.names, handle(n.lookups.members)),

		at(p.RegisterBroker, l.names, fast.names, handle(n.changes.register)),
		at(p.UnregisterBroker, l.names, fast.names, handle(n.changes.unregister)),
		at(p.QueryDataVersion, l.names, fast.names, handle(n.changes.dataVersion)),
		at(p.BrokerHeartbeat, l.names, fast.names, handle(n.changes.heartbeat)),
		at(p.WipeWritePermOfBroker, l.names, fast.names, handle(n.changes.wipeWritePerm)),
		at(p.AddWritePermOfBroker, l.names, fast.names, handle(n.changes.addWritePerm)),
		at(p.DeleteTopicInNamesrv, l.names, fast.names, handle(n.changes.deleteTopic)),
		at(p.RegisterTopicInNamesrv, l.names, fast.names, handle(n.changes.registerTopic)),
		at(p.PutKVConfig, l.names, fast.names, handle(n.changes.putKV)),
		at(p.GetKVConfig, l.names, fast.names, handle(n.changes.getKV)),
		at(p.DeleteKVConfig, l.names, fast.names, handle(n.changes.deleteKV)),
		at(p.GetKVListByNamespace, l.names, fast.names, handle(n.changes.listKV)),
		at(p.UpdateNamesrvConfig, l.admin, fast.admin, handleBody(n.settings.update)),
		at(p.GetNamesrvConfig, l.admin, fast.admin, handleBody(n.settings.showNames)),
	}
}
