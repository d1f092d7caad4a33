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

// permit answers what only asks whether it may, or for what is done already.
func permit(*call) (answer, error) { return answer{}, nil }

// withBody answers with a body alone.
func withBody(body p.Body) (answer, error) { return answer{Body: p.EncodeBody(body)}, nil }

// handleText is remoting's HandleBody for what gets the body decoded.
func handleText[T any, B p.BodyOf[T]](fn func(c *call, body *T) (answer, error)) r.Processor {
	return handleTextAsync[T, B](func(c *call, body *T) { c.Answer(fn(c, body)) })
}

// handleTextAsync is handleText for what ends the call itself.
func handleTextAsync[T any, B p.BodyOf[T]](fn func(c *call, body *T)) r.Processor {
	return func(_ context.Context, c *call) {
		body, err := p.DecodeBody[T, B](c.Body)
		if err != nil {
			c.Fail(err)
			return
		}
		fn(c, body)
	}
}

// inside gives calls with a header that exists inside the process only to fn, and others to next.
func inside[H any, P p.HeaderOf[H]](fn func(c *call, h P), next r.Processor) r.Processor {
	return func(ctx context.Context, c *call) {
		if h, ok := c.Header.(P); ok {
			fn(c, h)
			return
		}
		next(ctx, c)
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
	sends, transactions, recalls := sendRequests{n}, transactionRequests{n}, recallRequests{n}
	pulls, pops, assigns, clients := pullRequests{n}, popRequests{n}, assignmentRequests{n}, clientRequests{n}
	offsets, queries, topics, groups := offsetRequests{n}, queryRequests{n}, topicRequests{n}, groupRequests{n}
	resets, observe, relays, process := resetRequests{offsets}, observeRequests{n}, relayRequests{n}, nodeRequests{n}
	changeInvisible := r.HandleAsync(pops.changeInvisible)
	timers, users, replies := timerRequests{n}, userRequests{n}, replyRequests{n}
	return []r.Route{
		// Producers
		at(p.SendMessage, l.send, fast.send, r.HandleAsync(sends.send)),
		at(p.SendMessageV2, l.send, fast.send, r.HandleAsync(sends.send)),
		at(p.SendBatchMessage, l.send, fast.send, r.HandleAsync(sends.send)),

		at(p.EndTransaction, l.send, fast.send, r.HandleAsync(transactions.end)),
		at(p.RecallMessage, l.send, fast.send, r.HandleAsync(recalls.recall)),
		at(p.SendReplyMessage, l.send, fast.send, r.HandleAsync(replies.reply)),
		at(p.SendReplyMessageV2, l.send, fast.send, r.HandleAsync(replies.reply)),
		at(p.ResumeCheckHalfMessage, l.admin, fast.admin, r.HandleAsync(transactions.resume)),

		// Consumers
		at(p.PullMessage, l.pull, nil, r.HandleAsync(pulls.pull)),
		at(p.LitePullMessage, l.pull, nil, r.HandleAsync(pulls.pull)),
		at(p.ConsumerSendMsgBack, l.send, fast.send, inside(pops.sendBack, r.HandleAsync(sends.sendBack))),
		at(p.QueryConsumerOffset, l.client, fast.client, r.Handle(offsets.query)),
		at(p.UpdateConsumerOffset, l.client, fast.client, r.Handle(offsets.update)),
		at(p.GetConsumerListByGroup, l.client, fast.client, r.Handle(clients.consumerList)),
		at(p.LockBatchMQ, l.client, fast.client, handleText(clients.lock)),
		at(p.UnlockBatchMQ, l.client, fast.client, handleText(clients.unlock)),
		at(p.GetMaxOffset, l.client, fast.client, r.Handle(offsets.maximum)),
		at(p.GetMinOffset, l.client, fast.client, r.Handle(offsets.minimum)),
		at(p.SearchOffsetByTimestamp, l.query, fast.query, r.Handle(offsets.search)),
		at(p.GetEarliestMsgStoreTime, l.query, fast.query, r.Handle(offsets.earliest)),
		at(p.QueryMessage, l.query, fast.query, r.Handle(queries.byKey)),
		at(p.ViewMessageByID, l.query, fast.query, r.Handle(queries.byOffset)),

		// Consumers that share queues
		at(p.PopMessage, l.pull, nil, r.HandleAsync(pops.pop)),
		at(p.AckMessage, l.ack, fast.ack, r.HandleAsync(pops.ack)),
		at(p.BatchAckMessage, l.ack, fast.ack, inside(pops.ackReceipts, handleTextAsync(pops.ackBatch))),
		at(p.ChangeMessageInvisibleTime, l.ack, fast.ack, inside(pops.renewReceipt, changeInvisible)),
		at(p.Notification, l.pull, nil, r.HandleAsync(pops.notification)),
		at(p.PeekMessage, l.pull, nil, r.Handle(pops.peek)),
		at(p.PollingInfo, l.client, fast.client, r.Handle(pops.pollingInfo)),
		at(p.QueryAssignment, l.admin, fast.admin, inside(assigns.may, handleText(assigns.query))),
		at(p.SetMessageRequestMode, l.admin, fast.admin, handleTextAsync(assigns.setMode)),
		at(p.GetAllMessageRequestMode, l.admin, fast.admin, r.HandleBody(assigns.allModes)),

		// Both
		at(p.HeartBeat, l.client, fast.client, handleTextAsync(clients.heartBeat)),
		at(p.UnregisterClient, l.client, fast.client, r.Handle(clients.unregister)),
		at(p.CheckClientConfig, l.client, fast.client, handleText(clients.checkConfig)),

		// Topics
		at(p.UpdateAndCreateTopic, l.admin, fast.admin, r.HandleAsync(topics.update)),
		at(p.UpdateAndCreateTopicList, l.admin, fast.admin, handleTextAsync(topics.updateList)),
		at(p.DeleteTopicInBroker, l.admin, fast.admin, r.HandleAsync(topics.remove)),
		at(p.GetTopicConfig, l.admin, fast.admin, r.Handle(topics.config)),
		at(p.GetAllTopicConfig, l.admin, fast.admin, r.Handle(topics.configs)),
		at(p.GetTopicStatsInfo, l.admin, fast.admin, r.Handle(topics.statistics)),
		at(p.GetSystemTopicListFromBroker, l.admin, fast.admin, r.HandleBody(topics.system)),
		at(p.CleanUnusedTopic, l.admin, fast.admin, r.HandleBody(permit)), // a deleted topic has none
		at(p.CleanExpiredConsumeQueue, l.admin, fast.admin, r.HandleBody(permit)),

		// Groups
		at(p.UpdateAndCreateSubscriptionGroup, l.admin, fast.admin, handleTextAsync(groups.update)),
		at(p.UpdateAndCreateSubscriptionGroupList, l.admin, fast.admin, handleTextAsync(groups.updateList)),
		at(p.DeleteSubscriptionGroup, l.admin, fast.admin, r.HandleAsync(groups.remove)),
		at(p.GetAllSubscriptionGroupConfig, l.admin, fast.admin, r.Handle(groups.configs)),
		at(p.GetSubscriptionGroupConfig, l.admin, fast.admin, r.Handle(groups.config)),
		at(p.UpdateAndGetGroupForbidden, l.admin, fast.admin, r.HandleAsync(groups.forbidden)),
		at(p.GetAllConsumerOffset, l.admin, fast.admin, r.HandleBody(offsets.all)),
		at(p.InvokeBrokerToResetOffset, l.admin, fast.admin, r.HandleAsync(resets.reset)),
		at(p.CloneGroupOffset, l.admin, fast.admin, r.HandleAsync(resets.clone)),
		at(p.QueryCorrectionOffset, l.admin, fast.admin, r.Handle(resets.correction)),

		// Who is connected, how far is everybody
		at(p.GetConsumerConnectionList, l.admin, fast.admin, r.Handle(observe.consumerConnections)),
		at(p.GetProducerConnectionList, l.admin, fast.admin, r.Handle(observe.producerConnections)),
		at(p.GetAllProducerInfo, l.admin, fast.admin, r.HandleBody(observe.producers)),
		at(p.GetConsumeStats, l.admin, fast.admin, r.Handle(observe.consumeStats)),
		at(p.GetBrokerConsumeStats, l.admin, fast.admin, r.Handle(observe.allConsumeStats)),
		at(p.QueryTopicConsumeByWho, l.admin, fast.admin, r.Handle(observe.groupsOfTopic)),
		at(p.QueryTopicsByConsumer, l.admin, fast.admin, r.Handle(observe.topicsOfGroup)),
		at(p.QuerySubscriptionByConsumer, l.admin, fast.admin, r.Handle(observe.subscription)),
		at(p.QueryConsumeTimeSpan, l.admin, fast.admin, r.Handle(observe.timeSpan)),
		at(p.ViewBrokerStatsData, l.admin, fast.admin, r.Handle(observe.statistics)),
		at(p.QueryConsumeQueue, l.query, fast.query, r.Handle(queries.consumeQueue)),
		at(p.GetConsumerRunningInfo, l.admin, fast.admin, r.HandleAsync(relays.runningInfo)),
		at(p.ConsumeMessageDirectly, l.admin, fast.admin, r.HandleAsync(relays.consumeDirectly)),
		at(p.InvokeBrokerToGetConsumerStatus, l.admin, fast.admin, r.HandleAsync(relays.status)),

		// The process
		at(p.GetBrokerRuntimeInfo, l.admin, fast.admin, r.HandleBody(process.runtimeInfo)),
		at(p.GetAllDelayOffset, l.admin, fast.admin, r.HandleBody(timers.delayOffsets)),
		at(p.GetTimerCheckPoint, l.admin, fast.admin, r.HandleBody(timers.checkPoint)),
		at(p.GetTimerMetrics, l.admin, fast.admin, r.HandleBody(timers.metrics)),
		at(p.DeleteExpiredCommitLog, l.admin, fast.admin, r.HandleBody(process.deleteExpired)),
		at(p.GetBrokerHAStatus, l.admin, fast.admin, r.HandleBody(process.haStatus)),
		at(p.GetBrokerConfig, l.admin, fast.admin, r.HandleBody(n.settings.show)),
		at(p.UpdateBrokerConfig, l.admin, fast.admin, r.HandleBody(n.settings.update)),
		at(p.BackupStore, l.admin, fast.admin, r.HandleBody(permit)),

		// Users and what they may do
		at(p.AuthCreateUser, l.admin, fast.admin, r.Handle(users.create)),
		at(p.AuthUpdateUser, l.admin, fast.admin, r.Handle(users.update)),
		at(p.AuthDeleteUser, l.admin, fast.admin, r.Handle(users.remove)),
		at(p.AuthGetUser, l.admin, fast.admin, r.Handle(users.get)),
		at(p.AuthListUser, l.admin, fast.admin, r.Handle(users.list)),
		at(p.AuthCreateACL, l.admin, fast.admin, r.Handle(users.createACL)),
		at(p.AuthUpdateACL, l.admin, fast.admin, r.Handle(users.updateACL)),
		at(p.AuthDeleteACL, l.admin, fast.admin, r.Handle(users.removeACL)),
		at(p.AuthGetACL, l.admin, fast.admin, r.Handle(users.getACL)),
		at(p.AuthListACL, l.admin, fast.admin, r.Handle(users.listACL)),
	}
}

// namesRoutes is every request code that a name server serves.
//
//lint:long the table of request codes
func (n *names) namesRoutes(l, fast *lanes) []r.Route {
	lookups, changes := routeRequests{n}, namesRequests{n}
	return []r.Route{
		at(p.GetRouteInfoByTopic, l.names, fast.names, r.Handle(lookups.route)),
		at(p.GetBrokerClusterInfo, l.names, fast.names, r.HandleBody(lookups.clusterInfo)),
		at(p.GetAllTopicListFromNameserver, l.names, fast.names, r.HandleBody(lookups.list(n.routes.Topics))),
		at(p.GetTopicsByCluster, l.names, fast.names, r.Handle(lookups.topicsByCluster)),
		at(p.GetSystemTopicListFromNS, l.names, fast.names, r.HandleBody(lookups.systemTopics)),
		at(p.GetUnitTopicList, l.names, fast.names, r.HandleBody(lookups.list(n.routes.UnitTopics))),
		at(p.GetHasUnitSubTopicList, l.names, fast.names, r.HandleBody(lookups.list(n.routes.UnitSubTopics))),
		at(p.GetHasUnitSubUnunitTopicList, l.names, fast.names,
			r.HandleBody(lookups.list(n.routes.UnitSubOnlyTopics))),
		at(p.GetBrokerMemberGroup, l.names, fast.names, r.Handle(lookups.members)),

		at(p.RegisterBroker, l.names, fast.names, r.Handle(changes.register)),
		at(p.UnregisterBroker, l.names, fast.names, r.Handle(changes.unregister)),
		at(p.QueryDataVersion, l.names, fast.names, r.Handle(changes.dataVersion)),
		at(p.BrokerHeartbeat, l.names, fast.names, r.Handle(changes.heartbeat)),
		at(p.WipeWritePermOfBroker, l.names, fast.names, r.Handle(changes.wipeWritePerm)),
		at(p.AddWritePermOfBroker, l.names, fast.names, r.Handle(changes.addWritePerm)),
		at(p.DeleteTopicInNamesrv, l.names, fast.names, r.Handle(changes.deleteTopic)),
		at(p.RegisterTopicInNamesrv, l.names, fast.names, r.Handle(changes.registerTopic)),
		at(p.PutKVConfig, l.names, fast.names, r.Handle(changes.putKV)),
		at(p.GetKVConfig, l.names, fast.names, r.Handle(changes.getKV)),
		at(p.DeleteKVConfig, l.names, fast.names, r.Handle(changes.deleteKV)),
		at(p.GetKVListByNamespace, l.names, fast.names, r.Handle(changes.listKV)),
		at(p.UpdateNamesrvConfig, l.admin, fast.admin, r.HandleBody(n.settings.update)),
		at(p.GetNamesrvConfig, l.admin, fast.admin, r.HandleBody(n.settings.showNames)),
	}
}
