// SPDX-License-Identifier: Apache-2.0

// Bodies prints one filled instance of each JSON body as Apache RocketMQ's own classes and their fastjson write it.
// See README.md for how the texts beside it were made.

import java.lang.reflect.Array;
import java.lang.reflect.Method;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.remoting.protocol.*;
import org.apache.rocketmq.remoting.protocol.admin.*;
import org.apache.rocketmq.remoting.protocol.body.*;
import org.apache.rocketmq.remoting.protocol.header.GetConsumerListByGroupResponseBody;
import org.apache.rocketmq.remoting.protocol.heartbeat.*;
import org.apache.rocketmq.remoting.protocol.route.*;
import org.apache.rocketmq.remoting.protocol.statictopic.*;
import org.apache.rocketmq.remoting.protocol.subscription.*;

public class Bodies {
    static void out(String name, Object o) {
        System.out.println("-- " + name + " --");
        System.out.println(RemotingSerializable.toJson(o, false));
    }

    static MessageQueue mq(int id) { return new MessageQueue("T", "b", id); }

    static <K, V> HashMap<K, V> map(Object... kv) {
        HashMap<K, V> m = new LinkedHashMap<>();
        for (int i = 0; i < kv.length; i += 2) m.put((K) kv[i], (V) kv[i + 1]);
        return m;
    }

    static <K, V> ConcurrentHashMap<K, V> cmap(Object... kv) {
        return new ConcurrentHashMap<K, V>(Bodies.<K, V>map(kv));
    }

    static <T> HashSet<T> set(T... xs) { return new LinkedHashSet<>(Arrays.asList(xs)); }

    static DataVersion version(long counter) {
        DataVersion v = new DataVersion();
        v.setCounter(new AtomicLong(counter));
        v.setStateVersion(7);
        v.setTimestamp(1700000000000L);
        return v;
    }

    static SubscriptionData sub(String topic, String expr) {
        SubscriptionData s = new SubscriptionData(topic, expr);
        s.setSubVersion(1795969806314L);
        return s;
    }

    static SubscriptionData tagged() {
        SubscriptionData s = sub("T", "a || b");
        s.setTagsSet(set("a", "b"));
        s.setCodeSet(set(97, 98));
        return s;
    }

    static BrokerData broker() {
        return new BrokerData("DefaultCluster", "broker-a", map(0L, "10.0.0.1:10911", 1L, "10.0.0.2:10911"), false, "z1");
    }

    static TopicConfig topic(String name) {
        TopicConfig t = new TopicConfig(name, 8, 4, 6, 1);
        t.setAttributes(map("message.type", "FIFO"));
        return t;
    }

    static SubscriptionGroupConfig group(String name) {
        SubscriptionGroupConfig g = new SubscriptionGroupConfig();
        g.setGroupName(name);
        return g;
    }

    static TopicQueueMappingInfo mapping() {
        TopicQueueMappingInfo i = new TopicQueueMappingInfo("T", 8, "b", 3);
        i.setCurrIdMap(cmap(0, 1, 2, 3));
        return i;
    }

    static TopicQueueMappingDetail detail() {
        TopicQueueMappingDetail d = new TopicQueueMappingDetail();
        d.setTopic("T");
        d.setTotalQueues(8);
        d.setBname("b");
        d.setEpoch(3);
        d.setHostedQueues(cmap(0, Arrays.asList(new LogicQueueMappingItem(1, 2, "b", 10, 0, -1, -1, -1))));
        return d;
    }

    static Connection connection(String id, int port) {
        Connection c = new Connection();
        c.setClientId(id);
        c.setClientAddr("10.0.0.9:" + port);
        c.setLanguage(LanguageCode.JAVA);
        c.setVersion(513);
        return c;
    }

    static ConsumeStats stats() {
        ConsumeStats s = new ConsumeStats();
        s.setConsumeTps(12.5);
        OffsetWrapper w = new OffsetWrapper();
        w.setBrokerOffset(9);
        w.setConsumerOffset(5);
        w.setPullOffset(6);
        w.setLastTimestamp(1700000000001L);
        s.setOffsetTable(map(mq(0), w, mq(1), new OffsetWrapper()));
        return s;
    }

    static <T> T with(T target, Object... nameValues) throws Exception {
        for (int i = 0; i < nameValues.length; i += 2) {
            String setter = "set" + nameValues[i];
            for (Method m : target.getClass().getMethods()) {
                if (m.getName().equals(setter) && m.getParameterCount() == 1) {
                    m.invoke(target, nameValues[i + 1]);
                }
            }
        }
        return target;
    }

    static void route() throws Exception {
        TopicRouteData r = new TopicRouteData();
        r.setBrokerDatas(Arrays.asList(broker()));
        QueueData q = new QueueData();
        q.setBrokerName("broker-a");
        q.setReadQueueNums(8);
        q.setWriteQueueNums(4);
        q.setPerm(6);
        r.setQueueDatas(Arrays.asList(q));
        out("TopicRouteData", r);
        System.out.println("-- TopicRouteData/standard --");
        System.out.println(standard(r));
        r.setOrderTopicConf("broker-a:8;broker-b:8");
        r.setFilterServerTable(map("10.0.0.1:10911", Arrays.asList("10.0.0.3:3000")));
        r.setTopicQueueMappingByBroker(map("b", mapping()));
        out("TopicRouteData/full", r);
        out("TopicRouteData/empty", new TopicRouteData());
        ClusterInfo c = new ClusterInfo();
        c.setBrokerAddrTable(map("broker-a", broker()));
        c.setClusterAddrTable(map("DefaultCluster", set("broker-a", "broker-b")));
        out("ClusterInfo", c);
        BrokerMemberGroup g = new BrokerMemberGroup("DefaultCluster", "broker-a");
        g.setBrokerAddrs(map(0L, "10.0.0.1:10911"));
        out("BrokerMemberGroup", g);
        GetBrokerMemberGroupResponseBody b = new GetBrokerMemberGroupResponseBody();
        b.setBrokerMemberGroup(g);
        out("GetBrokerMemberGroupResponseBody", b);
    }

    // The features N/processor/ClientRequestProcessor asks for when a client takes standard JSON only. fastjson 1 and 2
    // spell them differently, so they are found by name.
    static String standard(TopicRouteData r) throws Exception {
        Method encode = null;
        for (Method m : RemotingSerializable.class.getMethods()) {
            if (m.getName().equals("encode") && m.getParameterCount() == 1 && m.getParameterTypes()[0].isArray()) encode = m;
        }
        Class<?> feature = encode.getParameterTypes()[0].getComponentType();
        List<Object> chosen = new ArrayList<>();
        for (String name : new String[] {"BrowserCompatible", "QuoteFieldNames", "SkipTransientField", "MapSortField"}) {
            for (Object f : feature.getEnumConstants()) if (f.toString().equals(name)) chosen.add(f);
        }
        Object array = Array.newInstance(feature, chosen.size());
        for (int i = 0; i < chosen.size(); i++) Array.set(array, i, chosen.get(i));
        return new String((byte[]) encode.invoke(r, array));
    }

    static void heartbeat() throws Exception {
        HeartbeatData h = new HeartbeatData();
        h.setClientID("10.0.0.9@4711#1");
        ProducerData p = new ProducerData();
        p.setGroupName("p");
        h.setProducerDataSet(set(p));
        ConsumerData c = new ConsumerData();
        c.setGroupName("g");
        c.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        c.setMessageModel(MessageModel.CLUSTERING);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        c.setSubscriptionDataSet(set(sub("%RETRY%g", "*"), tagged()));
        h.setConsumerDataSet(set(c));
        out("HeartbeatData", h);
        with(h, "HeartbeatFingerprint", -12345, "WithoutSub", true);
        h.setConsumerDataSet(new HashSet<>());
        out("HeartbeatData/v2", h);
        out("SubscriptionData", tagged());
        out("SubscriptionData/odd", sub("T", "a \"q\" \\ / \t\n\r\b\f\u0001\u007f <b>&'é漢\ud83d\ude80\u2028"));
        CheckClientRequestBody k = new CheckClientRequestBody();
        with(k, "ClientId", "c", "Group", "g", "Namespace", "n", "SubscriptionData", sub("T", "a > 1"));
        k.getSubscriptionData().setExpressionType("SQL92");
        out("CheckClientRequestBody", k);
        GetConsumerListByGroupResponseBody l = new GetConsumerListByGroupResponseBody();
        l.setConsumerIdList(Arrays.asList("c1", "c2"));
        out("GetConsumerListByGroupResponseBody", l);
        out("LockBatchRequestBody", with(new LockBatchRequestBody(), "ConsumerGroup", "g", "ClientId", "c", "MqSet", set(mq(0), mq(1))));
        out("UnlockBatchRequestBody", with(new UnlockBatchRequestBody(), "ConsumerGroup", "g", "ClientId", "c", "MqSet", set(mq(0)), "OnlyThisBroker", true));
        out("LockBatchResponseBody", with(new LockBatchResponseBody(), "LockOKMQSet", set(mq(0), mq(1))));
        out("MessageQueue", mq(3));
    }

    static void config() throws Exception {
        out("DataVersion", version(3));
        out("TopicConfig", topic("T"));
        out("TopicConfig/default", new TopicConfig("T"));
        TopicConfigAndMappingSerializeWrapper w = new TopicConfigAndMappingSerializeWrapper();
        w.setTopicConfigTable(cmap("T", topic("T"), "U", new TopicConfig("U")));
        w.setDataVersion(version(3));
        w.setMappingDataVersion(version(1));
        out("TopicConfigAndMappingSerializeWrapper", w);
        w.setTopicQueueMappingInfoMap(cmap("T", mapping()));
        w.setTopicQueueMappingDetailMap(cmap("T", detail()));
        out("TopicConfigAndMappingSerializeWrapper/mapping", w);
        TopicConfigSerializeWrapper v = new TopicConfigSerializeWrapper();
        v.setTopicConfigTable(cmap("T", topic("T")));
        v.setDataVersion(version(3));
        out("TopicConfigSerializeWrapper", v);
        out("CreateTopicListRequestBody", new CreateTopicListRequestBody(Arrays.asList(topic("T"), topic("U"))));
        out("TopicConfigAndQueueMapping", new TopicConfigAndQueueMapping(topic("T"), null));
        out("TopicConfigAndQueueMapping/mapping", new TopicConfigAndQueueMapping(topic("T"), detail()));
        out("SubscriptionGroupConfig/default", group("g"));
        SubscriptionGroupConfig g = group("g");
        with(g, "RetryMaxTimes", 3, "ConsumeMessageOrderly", true, "Attributes", map("priority.factor", "50"),
            "SubscriptionDataSet", set(new SimpleSubscriptionData("T", "TAG", "*", 1)));
        GroupRetryPolicy p = new GroupRetryPolicy();
        p.setType(GroupRetryPolicyType.EXPONENTIAL);
        p.setExponentialRetryPolicy(new ExponentialRetryPolicy());
        g.setGroupRetryPolicy(p);
        out("SubscriptionGroupConfig", g);
        GroupRetryPolicy c = new GroupRetryPolicy();
        c.setCustomizedRetryPolicy(new CustomizedRetryPolicy(new long[] {1000, 5000}));
        out("GroupRetryPolicy", c);
        SubscriptionGroupWrapper s = new SubscriptionGroupWrapper();
        s.setDataVersion(version(5));
        s.setSubscriptionGroupTable(cmap("g", group("g")));
        with(s, "ForbiddenTable", cmap("g", cmap("T", 3)));
        out("SubscriptionGroupWrapper", s);
        out("SubscriptionGroupList", new SubscriptionGroupList(Arrays.asList(group("g"))));
        out("GroupForbidden", with(new GroupForbidden(), "Group", "g", "Topic", "T", "Readable", true));
        RegisterBrokerBody r = new RegisterBrokerBody();
        r.setTopicConfigSerializeWrapper(w);
        r.setFilterServerList(Arrays.asList("10.0.0.3:3000"));
        out("RegisterBrokerBody", r);
        System.out.println("-- RegisterBrokerBody/compressed --");
        System.out.println(Base64.getEncoder().encodeToString(r.encode(true)));
        ConsumerOffsetSerializeWrapper o = new ConsumerOffsetSerializeWrapper();
        o.setDataVersion(version(9));
        o.setOffsetTable(cmap("T@g", cmap(0, 5L, 1, 6L)));
        out("ConsumerOffsetSerializeWrapper", o);
    }

    static void admin() throws Exception {
        TopicList t = new TopicList();
        t.setTopicList(set("a", "b"));
        out("TopicList", t);
        t.setBrokerAddr("10.0.0.1:10911");
        out("TopicList/addr", t);
        out("GroupList", with(new GroupList(), "GroupList", set("g")));
        out("KVTable", with(new KVTable(), "Table", map("k", "v", "l", "10.5 9.1 8.0")));
        TopicStatsTable st = new TopicStatsTable();
        TopicOffset to = with(new TopicOffset(), "MinOffset", 1L, "MaxOffset", 9L, "LastUpdateTimestamp", 1700000000000L);
        st.setOffsetTable(map(mq(0), to, mq(1), new TopicOffset()));
        out("TopicStatsTable", st);
        out("ConsumeStats", stats());
        ConsumeStatsList l = new ConsumeStatsList();
        l.setBrokerAddr("10.0.0.1:10911");
        l.setConsumeStatsList(Arrays.asList(map("g", Arrays.asList(stats()))));
        l.setTotalDiff(4);
        l.setTotalInflightDiff(1);
        out("ConsumeStatsList", l);
        QueueTimeSpan q = with(new QueueTimeSpan(), "MessageQueue", mq(0), "MinTimeStamp", 1700000000000L,
            "MaxTimeStamp", 1700000001234L, "ConsumeTimeStamp", 1700000000999L, "DelayTime", 235L);
        QueryConsumeTimeSpanBody qb = new QueryConsumeTimeSpanBody();
        qb.setConsumeTimeSpanSet(Arrays.asList(q));
        out("QueryConsumeTimeSpanBody", qb);
        ConsumeQueueData d = with(new ConsumeQueueData(), "PhysicOffset", 100L, "PhysicSize", 200, "TagsCode", 97L, "Eval", true);
        QueryConsumeQueueResponseBody cq = with(new QueryConsumeQueueResponseBody(), "SubscriptionData", sub("T", "*"), "FilterData", "f",
            "QueueData", Arrays.asList(d, with(new ConsumeQueueData(), "Msg", "m", "ExtendDataJson", "{}", "BitMap", "01")),
            "MaxQueueIndex", 9L, "MinQueueIndex", 1L);
        out("QueryConsumeQueueResponseBody", cq);
        BrokerStatsItem i = with(new BrokerStatsItem(), "Sum", 10L, "Tps", 0.25, "Avgpt", 12345678.5);
        out("BrokerStatsData", with(new BrokerStatsData(), "StatsMinute", i, "StatsHour", new BrokerStatsItem(),
            "StatsDay", with(new BrokerStatsItem(), "Sum", 3L, "Tps", 1e-5, "Avgpt", 100.0)));
        out("BrokerStatsItem/nan", with(new BrokerStatsItem(), "Tps", Double.NaN, "Avgpt", Double.POSITIVE_INFINITY));
        out("BrokerStatsItem/numbers", with(new BrokerStatsItem(), "Tps", 0.001, "Avgpt", 9999999.0));
        out("BrokerStatsItem/big", with(new BrokerStatsItem(), "Tps", 1e7, "Avgpt", 1.5e300));
        out("QuerySubscriptionResponseBody", with(new QuerySubscriptionResponseBody(), "Group", "g", "Topic", "T", "SubscriptionData", tagged()));
        out("QuerySubscriptionResponseBody/none", with(new QuerySubscriptionResponseBody(), "Group", "g", "Topic", "T"));
        out("QueryCorrectionOffsetBody", with(new QueryCorrectionOffsetBody(), "CorrectionOffsets", map(0, 10L, 1, 11L)));
        HARuntimeInfo ha = with(new HARuntimeInfo(), "Master", true, "MasterCommitLogMaxOffset", 100L, "InSyncSlaveNums", 1);
        HARuntimeInfo.HAConnectionRuntimeInfo hc = with(new HARuntimeInfo.HAConnectionRuntimeInfo(), "Addr", "10.0.0.2:4", "SlaveAckOffset", 90L,
            "Diff", 10L, "InSync", true, "TransferredByteInSecond", 5L, "TransferFromWhere", 80L);
        ha.setHaConnectionInfo(Arrays.asList(hc));
        out("HARuntimeInfo", ha);
        out("HARuntimeInfo/default", new HARuntimeInfo());
    }

    static void clients() throws Exception {
        ConsumerConnection cc = new ConsumerConnection();
        cc.setConnectionSet(set(connection("c1", 1), connection("c2", 2)));
        cc.setSubscriptionTable(cmap("T", tagged()));
        cc.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        cc.setMessageModel(MessageModel.CLUSTERING);
        cc.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        out("ConsumerConnection", cc);
        ProducerConnection pc = new ProducerConnection();
        pc.setConnectionSet(set(connection("c1", 1)));
        out("ProducerConnection", pc);
        ProducerInfo p = new ProducerInfo("c1", "10.0.0.9", LanguageCode.GO, 513, 1700000000000L);
        out("ProducerTableInfo", new ProducerTableInfo(map("p", Arrays.asList(p))));
        ConsumerRunningInfo ri = new ConsumerRunningInfo();
        ri.getProperties().put("PROP_CONSUME_TYPE", "CONSUME_PASSIVELY");
        ri.setSubscriptionSet(new TreeSet<>(Arrays.asList(tagged())));
        ri.getMqTable().put(mq(0), with(new ProcessQueueInfo(), "CommitOffset", 5L, "CachedMsgMinOffset", 5L, "CachedMsgMaxOffset", 9L,
            "CachedMsgCount", 4, "CachedMsgSizeInMiB", 1, "Locked", true, "TryUnlockTimes", 2L, "LastLockTimestamp", 1700000000000L,
            "LastPullTimestamp", 1700000000001L, "LastConsumeTimestamp", 1700000000002L));
        ri.getMqPopTable().put(mq(1), with(new PopProcessQueueInfo(), "WaitAckCount", 3, "Droped", true, "LastPopTimestamp", 1700000000000L));
        ri.getStatusTable().put("T", with(new ConsumeStatus(), "PullRT", 1.5, "PullTPS", 2.0, "ConsumeRT", 0.5, "ConsumeOKTPS", 10.0,
            "ConsumeFailedTPS", 0.0, "ConsumeFailedMsgs", 7L));
        ri.getUserConsumerInfo().put("k", "v");
        out("ConsumerRunningInfo", ri);
        ri.setJstack("main\n  at x");
        out("ConsumerRunningInfo/jstack", ri);
        out("ConsumeMessageDirectlyResult", with(new ConsumeMessageDirectlyResult(), "Order", false, "ConsumeResult", CMResult.CR_SUCCESS, "SpentTimeMills", 3L));
        out("ConsumeMessageDirectlyResult/remark", with(new ConsumeMessageDirectlyResult(), "ConsumeResult", CMResult.CR_THROW_EXCEPTION, "Remark", "boom"));
        out("ResetOffsetBody", with(new ResetOffsetBody(), "OffsetTable", map(mq(0), 5L, mq(1), 6L)));
        out("ResetOffsetBodyForC", with(new ResetOffsetBodyForC(), "OffsetTable", Arrays.asList(new MessageQueueForC("T", "b", 0, 5))));
        out("GetConsumerStatusBody", with(new GetConsumerStatusBody(), "MessageQueueTable", map(mq(0), 5L), "ConsumerTable", map("c1", map(mq(0), 5L, mq(1), 6L))));
        out("GetConsumerStatusBody/empty", new GetConsumerStatusBody());
    }

    static void pop() throws Exception {
        out("QueryAssignmentRequestBody", with(new QueryAssignmentRequestBody(), "Topic", "T", "ConsumerGroup", "g", "ClientId", "c",
            "StrategyName", "AVG", "MessageModel", MessageModel.CLUSTERING));
        MessageQueueAssignment a = with(new MessageQueueAssignment(), "MessageQueue", mq(0));
        MessageQueueAssignment b = with(new MessageQueueAssignment(), "MessageQueue", mq(-1), "Mode", MessageRequestMode.POP, "Attachments", map("k", "v"));
        out("QueryAssignmentResponseBody", with(new QueryAssignmentResponseBody(), "MessageQueueAssignments", set(a, b)));
        SetMessageRequestModeRequestBody m = with(new SetMessageRequestModeRequestBody(), "Topic", "T", "ConsumerGroup", "g",
            "Mode", MessageRequestMode.POP, "PopShareQueueNum", 2);
        out("SetMessageRequestModeRequestBody", m);
        out("MessageRequestModeSerializeWrapper", with(new MessageRequestModeSerializeWrapper(), "MessageRequestModeMap", cmap("T", cmap("g", m))));
        BitSet bits = new BitSet();
        bits.set(0);
        bits.set(3);
        bits.set(17);
        bits.set(70);
        BatchAck k = with(new BatchAck(), "ConsumerGroup", "g", "Topic", "T", "Retry", "0", "StartOffset", 100L, "QueueId", 2,
            "ReviveQueueId", 1, "PopTime", 1700000000000L, "InvisibleTime", 60000L, "BitSet", bits);
        BatchAckMessageRequestBody ab = with(new BatchAckMessageRequestBody(), "BrokerName", "b", "Acks", Arrays.asList(k));
        out("BatchAckMessageRequestBody", ab);
    }

    static void auth() throws Exception {
        out("UserInfo", UserInfo.of("u", "p", "Super", "enable"));
        out("UserInfo/nopassword", UserInfo.of("u", null, "Normal"));
        out("AclInfo", AclInfo.of("User:u", Arrays.asList("Topic:t", "Group:g"), Arrays.asList("Pub", "Sub"), Arrays.asList("10.0.0.0/8"), "Allow"));
        out("UserInfo/list", Arrays.asList(UserInfo.of("u", "p", "Super", "enable"), UserInfo.of("v", null, "Normal")));
    }

    // What fastjson 1 makes of an object that it meets twice.
    static void references() throws Exception {
        TopicConfig a = topic("T"), b = topic("U");
        b.setAttributes(a.getAttributes());
        out("CreateTopicListRequestBody/attributes", new CreateTopicListRequestBody(Arrays.asList(a, b)));
        out("CreateTopicListRequestBody/twice", new CreateTopicListRequestBody(Arrays.asList(a, a)));
        Map<MessageQueue, Long> table = map(mq(0), 5L, mq(1), 6L);
        out("GetConsumerStatusBody/table", with(new GetConsumerStatusBody(), "MessageQueueTable", table, "ConsumerTable", map("c1", table)));
        ConsumerConnection cc = new ConsumerConnection();
        SubscriptionData s = tagged();
        cc.setSubscriptionTable(cmap("T", s, "%RETRY%g", s));
        out("ConsumerConnection/subscription", cc);
        ConsumerRunningInfo ri = new ConsumerRunningInfo();
        MessageQueue q = mq(0);
        ri.getMqTable().put(q, new ProcessQueueInfo());
        ri.getMqPopTable().put(q, new PopProcessQueueInfo());
        out("ConsumerRunningInfo/key", ri);
        QueryAssignmentResponseBody qa = new QueryAssignmentResponseBody();
        MessageQueueAssignment x = with(new MessageQueueAssignment(), "MessageQueue", q);
        MessageQueueAssignment y = with(new MessageQueueAssignment(), "MessageQueue", q, "Mode", MessageRequestMode.POP);
        out("QueryAssignmentResponseBody/queue", with(qa, "MessageQueueAssignments", set(x, y)));
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 0) {
            references();
            return;
        }
        route();
        heartbeat();
        config();
        admin();
        clients();
        pop();
        auth();
    }
}
