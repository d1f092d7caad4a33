// SPDX-License-Identifier: Apache-2.0

package service

import (
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/nameserver"
	"github.com/roquetmq/roquet/internal/protocol"
)

// names is a name server. The families of requests are types over it.
type names struct {
	routes   *nameserver.Routes
	kv       *nameserver.KV
	self     *identity
	settings *settings
}

func newNames(cfg *config.Config, self *identity, set *settings, log *slog.Logger) (*names, error) {
	kv, err := nameserver.OpenKV(filepath.Join(cfg.Store.Dir, "namesrv", "kvConfig.json"))
	if err != nil {
		return nil, err
	}
	routes := nameserver.NewRoutes(log.With("component", "nameserver"), kv)
	return &names{routes: routes, kv: kv, self: self, settings: set}, nil
}

// routeRequests answers where things are: GET_ROUTEINFO_BY_TOPIC 105, GET_BROKER_CLUSTER_INFO 106, the lists
// of topics 206, 224, 304, 311, 312, 313, and GET_BROKER_MEMBER_GROUP 901. Source:
// DefaultRequestProcessor.java, ClientRequestProcessor.java.
// Known difference: integer keys are always quoted, which every client reads and strict parsers need (case
// C010); a client that came by a listener with an advertised address of its own is told that address for the
// broker of this process (case C187).
type routeRequests struct{ *names }

func (s routeRequests) route(c *call, h *protocol.GetRouteInfoRequestHeader) (answer, error) {
	route, ok := s.routes.Route(h.Topic)
	if !ok {
		return answer{}, noRoute(h.Topic)
	}
	body := &protocol.TopicRouteData{
		FilterServerTable: route.FilterServers, OrderTopicConf: route.OrderTopicConf,
		BrokerDatas: make([]protocol.BrokerData, len(route.Brokers)),
		QueueDatas:  queueDatas(route.Queues),
	}
	for i := range route.Brokers {
		body.BrokerDatas[i] = s.brokerBody(c, &route.Brokers[i])
	}
	return withBody(body)
}

func queueDatas(queues []nameserver.QueueData) []protocol.QueueData {
	return mapped(queues, func(q nameserver.QueueData) protocol.QueueData { return protocol.QueueData(q) })
}

// noRoute is the answer for a topic that no broker has; the client goes on with the default topic's route
// then.
func noRoute(topic string) error {
	return protocol.Errorf(protocol.TopicNotExist,
		"No topic route info in name server for the topic: %s. Either it does not exist yet (create it with "+
			"mqadmin updateTopic, or send to it where autoCreateTopicEnable is true), or its broker has not "+
			"registered here", topic)
}

// brokerBody replaces the address of this process's broker by what the client's listener advertises.
func (s routeRequests) brokerBody(c *call, b *nameserver.BrokerData) protocol.BrokerData {
	body := protocol.BrokerData(*b)
	if c.Via != nil && c.Via.Advertised != "" && s.self != nil && b.BrokerName == s.self.brokerName {
		body.BrokerAddrs = map[int64]string{0: c.Via.Advertised}
	}
	return body
}

func (s routeRequests) clusterInfo(c *call) (answer, error) {
	info := s.routes.ClusterInfo()
	body := &protocol.ClusterInfo{
		BrokerAddrTable: make(map[string]protocol.BrokerData, len(info.Brokers)), ClusterAddrTable: info.Clusters,
	}
	for name, b := range info.Brokers {
		body.BrokerAddrTable[name] = s.brokerBody(c, &b)
	}
	return withBody(body)
}

// list is what answers with the topics of a list.
func (s routeRequests) list(topics func() []string) func(*call) (answer, error) {
	return func(*call) (answer, error) { return topicList(topics(), "") }
}

func (s routeRequests) topicsByCluster(_ *call, h *protocol.GetTopicsByClusterRequestHeader) (answer, error) {
	return topicList(s.routes.TopicsIn(h.Cluster), "")
}

func (s routeRequests) systemTopics(*call) (answer, error) {
	return topicList(s.routes.SystemTopics())
}

func topicList(topics []string, brokerAddr string) (answer, error) {
	topics = append([]string{}, topics...) // never null
	return withBody(&protocol.TopicList{TopicList: topics, BrokerAddr: brokerAddr})
}

func (s routeRequests) members(_ *call, h *protocol.GetBrokerMemberGroupRequestHeader) (answer, error) {
	return withBody(&protocol.GetBrokerMemberGroupResponseBody{BrokerMemberGroup: &protocol.BrokerMemberGroup{
		BrokerAddrs: s.routes.Members(h.BrokerName), BrokerName: h.BrokerName, Cluster: h.ClusterName,
	}})
}

// namesRequests changes what the name server knows: REGISTER_BROKER 103, UNREGISTER_BROKER 104,
// QUERY_DATA_VERSION 322, BROKER_HEARTBEAT 904, WIPE_WRITE_PERM_OF_BROKER 205, ADD_WRITE_PERM_OF_BROKER 327,
// DELETE_TOPIC_IN_NAMESRV 216, REGISTER_TOPIC_IN_NAMESRV 217, and the KV settings 100, 101, 102, 219. Source:
// DefaultRequestProcessor.java.
type namesRequests struct{ *names }

func (s namesRequests) register(c *call, h *protocol.RegisterBrokerRequestHeader) (answer, error) {
	if crc := h.BodyCRC32.Or(0); crc != 0 && crc != protocol.BodyCRC32(c.Body) {
		return answer{}, protocol.Errorf(protocol.SystemError,
			"crc32 not match: the header says %d, the body has %d", crc, protocol.BodyCRC32(c.Body))
	}
	reg := nameserver.Registration{
		Cluster: cloned(h.ClusterName), BrokerName: cloned(h.BrokerName), BrokerAddr: cloned(h.BrokerAddr),
		BrokerID: h.BrokerID, HAServerAddr: cloned(h.HAServerAddr), ZoneName: cloned(h.ZoneName),
		Complete: true, Connection: c.Peer.ID(),
		Timeout: time.Duration(h.HeartbeatTimeoutMillis.Or(0)) * time.Millisecond,
	}
	if h.EnableActingMaster.Present {
		reg.EnableActingMaster = &h.EnableActingMaster.Value
	}
	if err := readRegistration(c.Body, h.Compressed, &reg); err != nil {
		return answer{}, err
	}
	result, err := s.routes.Register(&reg, time.Now())
	if err != nil {
		return answer{}, err
	}
	said := answer{Header: &protocol.RegisterBrokerResponseHeader{
		HAServerAddr: result.HAServerAddr, MasterAddr: result.MasterAddr,
	}}
	if order, ok := s.kv.List(nameserver.OrderNamespace); ok {
		said.Body = protocol.EncodeBody(&protocol.KVTable{Table: order})
	}
	return said, nil
}

func readRegistration(body []byte, compressed bool, reg *nameserver.Registration) error {
	if len(body) == 0 {
		return nil // a broker before 3.0.11 registers its address alone
	}
	read := protocol.DecodeBody[protocol.RegisterBrokerBody]
	if compressed {
		read = protocol.DecodeCompressedRegisterBody
	}
	said, err := read(body)
	if err != nil {
		return err
	}
	wrapper := &said.TopicConfigSerializeWrapper
	reg.Version = nameserver.DataVersion(wrapper.DataVersion)
	reg.FilterServers = said.FilterServerList
	for name, t := range wrapper.TopicConfigTable {
		reg.Topics = append(reg.Topics, nameserver.TopicConfig{
			Name: name, ReadQueueNums: t.ReadQueueNums, WriteQueueNums: t.WriteQueueNums,
			Perm: t.Perm, SysFlag: t.TopicSysFlag,
		})
	}
	return nil
}

func (s namesRequests) unregister(_ *call, h *protocol.UnRegisterBrokerRequestHeader) (answer, error) {
	s.routes.Unregister(h.ClusterName, h.BrokerName, h.BrokerAddr)
	return answer{}, nil
}

func (s namesRequests) dataVersion(c *call, h *protocol.QueryDataVersionRequestHeader) (answer, error) {
	version, err := protocol.DecodeBody[protocol.DataVersion](c.Body)
	if err != nil {
		return answer{}, err
	}
	changed, last, known := s.routes.CompareVersion(
		h.ClusterName, h.BrokerAddr, nameserver.DataVersion(*version), time.Now())
	said := answer{Header: &protocol.QueryDataVersionResponseHeader{Changed: changed}}
	if known {
		said.Body = protocol.EncodeBody((*protocol.DataVersion)(&last))
	}
	return said, nil
}

func (s namesRequests) heartbeat(_ *call, h *protocol.BrokerHeartbeatRequestHeader) (answer, error) {
	s.routes.Heartbeat(h.ClusterName, h.BrokerAddr, time.Now())
	return answer{}, nil
}

func (s namesRequests) wipeWritePerm(_ *call, h *protocol.WipeWritePermOfBrokerRequestHeader) (answer, error) {
	n := s.routes.WipeWritePerm(h.BrokerName)
	return answer{Header: &protocol.WipeWritePermOfBrokerResponseHeader{WipeTopicCount: int32(n)}}, nil
}

func (s namesRequests) addWritePerm(_ *call, h *protocol.AddWritePermOfBrokerRequestHeader) (answer, error) {
	n := s.routes.AddWritePerm(h.BrokerName)
	return answer{Header: &protocol.AddWritePermOfBrokerResponseHeader{AddTopicCount: int32(n)}}, nil
}

func (s namesRequests) deleteTopic(_ *call, h *protocol.DeleteTopicFromNamesrvRequestHeader) (answer, error) {
	if h.ClusterName != "" {
		s.routes.DeleteTopicIn(h.Topic, h.ClusterName)
	} else {
		s.routes.DeleteTopic(h.Topic)
	}
	return answer{}, nil
}

func (s namesRequests) registerTopic(c *call, h *protocol.RegisterTopicRequestHeader) (answer, error) {
	body, err := protocol.DecodeBody[protocol.TopicRouteData](c.Body)
	if err != nil {
		return answer{}, err
	}
	queueData := func(q protocol.QueueData) nameserver.QueueData { return nameserver.QueueData(q) }
	s.routes.RegisterTopic(cloned(h.Topic), mapped(body.QueueDatas, queueData))
	return answer{}, nil
}

func (s namesRequests) putKV(_ *call, h *protocol.PutKVConfigRequestHeader) (answer, error) {
	return answer{}, s.kv.Put(cloned(h.Namespace), cloned(h.Key), cloned(h.Value))
}

func (s namesRequests) getKV(_ *call, h *protocol.GetKVConfigRequestHeader) (answer, error) {
	value, ok := s.kv.Get(h.Namespace, h.Key)
	if !ok {
		return answer{}, protocol.Errorf(protocol.QueryNotFound,
			"No config item, Namespace: %s Key: %s", h.Namespace, h.Key)
	}
	return answer{Header: &protocol.GetKVConfigResponseHeader{Value: value}}, nil
}

func (s namesRequests) deleteKV(_ *call, h *protocol.DeleteKVConfigRequestHeader) (answer, error) {
	return answer{}, s.kv.Delete(h.Namespace, h.Key)
}

func (s namesRequests) listKV(_ *call, h *protocol.GetKVListByNamespaceRequestHeader) (answer, error) {
	table, ok := s.kv.List(h.Namespace)
	if !ok {
		return answer{}, protocol.Errorf(protocol.QueryNotFound, "No config item, Namespace: %s", h.Namespace)
	}
	return withBody(&protocol.KVTable{Table: table})
}

// cloned copies a text out of the frame it came in, for whoever keeps it.
func cloned(text string) string { return strings.Clone(text) }
