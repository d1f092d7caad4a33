// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

func handles(list ...string) string {
	b, _ := json.Marshal(map[string]any{"receiptHandles": list})
	return string(b)
}

// A fresh node takes curl -d hi, and gives it to a group.
func TestPublishAndReceive(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	sent := r.post("/v1/topics/t/messages", "hi").want(http.StatusCreated)
	got := r.receive("g", "t", `{"wait":"10s"}`)
	if got.text("messages.0.text") != "hi" || got.text("messages.0.messageId") != sent.text("messageId") ||
		got.text("messages.0.offset") != sent.text("offset") || got.value("messages.0.deliveryAttempt") != 1.0 {
		t.Errorf("sent %s, received %s", sent.body, got.body)
	}
	handle := got.text("messages.0.receiptHandle")
	if a := r.receive("g", "t", `{}`); a.value("messages.0") != nil {
		t.Errorf("received twice: %s", a.body)
	}
	if a := r.receive("other", "t", `{}`); a.text("messages.0.text") != "hi" {
		t.Errorf("another group got %s", a.body)
	}
	if a := r.post("/v1/groups/g/messages:ack", handles(handle)).want(200); a.value("results.0.error") != nil {
		t.Errorf("ack: %s", a.body)
	}
	again := r.post("/v1/groups/g/messages:ack", handles(handle, "forged", "")).want(http.StatusOK)
	for i := range 3 {
		checkError(t, again.value(fmt.Sprintf("results.%d.error", i)), "INVALID_RECEIPT_HANDLE")
	}
}

// A receive that waits gets what is published meanwhile, and nothing after its time.
func TestReceiveWaits(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", "").want(http.StatusOK)
	began := time.Now()
	if a := r.receive(
		"g",
		"t",
		`{"wait":"0.3s"}`,
	); a.value("messages.0") != nil ||
		time.Since(began) < 200*time.Millisecond {
		t.Errorf("after %v: %s", time.Since(began), a.body)
	}
	got := make(chan *answer, 1)
	go func() { got <- r.post("/v1/groups/g/topics/t/messages:receive", `{"wait":"20s"}`) }()
	r.post("/v1/topics/t/messages", "late")
	select {
	case a := <-got:
		if a.want(http.StatusOK).text("messages.0.text") != "late" {
			t.Errorf("received %s", a.body)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the receive did not end")
	}
}

// A client that leaves while it waits takes nothing away.
func TestReceiveClientGone(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", "").want(http.StatusOK)
	for range 5 {
		ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
		req, _ := http.NewRequestWithContext(
			ctx,
			http.MethodPost,
			"http://"+r.addr+"/v1/groups/g/topics/t/messages:receive",
			strings.NewReader(`{"wait":"20s","maxMessages":32}`),
		)
		if resp, err := r.http.Do(req); err == nil {
			resp.Body.Close()
			t.Fatal("the receive ended by itself")
		}
		leave()
	}
	r.post("/v1/topics/t/messages", "x").want(http.StatusCreated)
	if a := r.receive("g", "t", `{"wait":"10s"}`); a.value("messages.0.deliveryAttempt") != 1.0 {
		t.Errorf("received %s", a.body)
	}
}

// Filters select by tag and by SQL92.
func TestReceiveFilters(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for _, tag := range []string{"a", "b", "c"} {
		r.post("/v1/topics/t/messages", tag, "Roquet-Tag: "+tag, "Roquet-Property-n: "+tag).want(http.StatusCreated)
	}
	for filter, want := range map[string]int{`"tag":"b"`: 1, `"tag":"a || c"`: 2, `"tag":"x"`: 0, `"sql":"n <> 'a'"`: 2} {
		group := fmt.Sprintf("g%d-%d", len(filter), want)
		a := r.receive(group, "t", `{"maxMessages":32,"wait":"0.2s",`+filter+`}`)
		if got, _ := a.value("messages").([]any); len(got) != want {
			t.Errorf("%s: %s", filter, a.body)
		}
	}
}

// Nack gives back, extend hides on and renews the handle.
func TestNackAndExtend(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.post("/v1/topics/t/messages", "x").want(http.StatusCreated)
	first := r.receive("g", "t", `{"wait":"10s"}`).text("messages.0.receiptHandle")
	second := r.post(
		"/v1/groups/g/messages:extend",
		`{"invisible":"60s","receiptHandles":["`+first+`"]}`,
	).text(
		"results.0.receiptHandle",
	)
	if first == second {
		t.Error("extend did not renew the handle")
	}
	checkError(
		t,
		r.post("/v1/groups/g/messages:nack", handles(first)).value("results.0.error"),
		"INVALID_RECEIPT_HANDLE",
	)
	r.post("/v1/groups/g/messages:nack", handles(second)).want(http.StatusOK)
	again := r.receive("g", "t", `{"wait":"10s"}`)
	if again.value("messages.0.deliveryAttempt") != 2.0 {
		t.Errorf("after the nack: %s", again.body)
	}
	r.post(
		"/v1/groups/g/messages:nack",
		`{"delay":"60s","receiptHandles":["`+again.text("messages.0.receiptHandle")+`"]}`,
	)
	if a := r.receive("g", "t", `{}`); a.value("messages.0") != nil {
		t.Errorf("a delayed nack came at once: %s", a.body)
	}
}

// Dead letters are shown, and redriven once.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/groups/g", "").want(http.StatusOK)
	if a := r.get("/v1/groups/g/dlq/messages").want(http.StatusOK); a.value("messages.0") != nil {
		t.Errorf("dead letters of a new group: %s", a.body)
	}
	for i := range 3 {
		r.post("/v1/topics/t/messages", fmt.Sprint("m", i), "Roquet-Property-n: 1").want(http.StatusCreated)
		handle := r.receive("g", "t", `{"wait":"10s"}`).text("messages.0.receiptHandle")
		if a := r.post("/v1/groups/g/messages:deadLetter", handles(handle)); a.value("results.0.error") != nil {
			t.Fatalf("%s", a.body)
		}
	}
	if a := r.receive("g", "t", `{}`); a.value("messages.0") != nil {
		t.Errorf("received after it was buried: %s", a.body)
	}
	dead := r.get("/v1/groups/g/dlq/messages").want(http.StatusOK)
	if dead.text("messages.2.text") != "m2" || dead.text("messages.0.originTopic") != "t" ||
		dead.text("nextOffset") != "3" {
		t.Errorf("dead letters %s", dead.body)
	}
	one := r.post("/v1/groups/g/dlq/messages:redrive", `{"max":1}`).want(http.StatusOK)
	if one.text("results.0.topic") != "t" || one.text("remaining") != "2" {
		t.Errorf("redrive %s", one.body)
	}
	rest := r.post("/v1/groups/g/dlq/messages:redrive", "").want(http.StatusOK)
	if rest.text("results.1.offset") != "2" || rest.value("results.2") != nil || rest.text("remaining") != "0" {
		t.Errorf("redrive %s", rest.body)
	}
	if a := r.post("/v1/groups/g/dlq/messages:redrive", ""); a.value("results.0") != nil {
		t.Errorf("redriven twice: %s", a.body)
	}
	if a := r.get("/v1/groups/g/dlq/messages"); a.value("messages.0") != nil {
		t.Errorf("not redriven: %s", a.body)
	}
	if a := r.get("/v1/groups/g/dlq/messages?offset=0"); a.text("messages.2.text") != "m2" {
		t.Errorf("dead letters stay: %s", a.body)
	}
	for i := range 3 {
		a := r.receive("g", "t", `{"wait":"10s"}`)
		if a.value("messages.0.deliveryAttempt") != 1.0 || a.text("messages.0.properties.n") != "1" ||
			a.text("messages.0.originTopic") != "" {
			t.Errorf("redriven message %d: %s", i, a.body)
		}
	}
}

// Deleting is idempotent, but for what is the server's.
func TestDelete(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for range 2 {
		r.do(http.MethodPut, "/v1/topics/t", "").want(http.StatusOK)
		r.do(http.MethodPut, "/v1/groups/g", "").want(http.StatusOK)
		for range 2 {
			r.do(http.MethodDelete, "/v1/topics/t", "").want(http.StatusOK)
			r.do(http.MethodDelete, "/v1/groups/g", "").want(http.StatusOK)
		}
		r.get("/v1/topics/t").want(http.StatusNotFound)
		r.get("/v1/groups/g").want(http.StatusNotFound)
	}
	r.do(http.MethodDelete, "/v1/topics/TBW102", "").want(http.StatusBadRequest)
}

// What is exported can be imported.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", `{"queues":3,"messageType":"FIFO","permission":"READ"}`).want(http.StatusOK)
	r.do(
		http.MethodPut,
		"/v1/groups/g",
		`{"orderly":true,"retryMaxTimes":2,"consumeEnabled":false}`,
	).want(
		http.StatusOK,
	)
	exported := r.get("/v1/definitions").want(http.StatusOK)
	other := start(t, nil)
	other.post("/v1/definitions", string(exported.body)).want(http.StatusOK)
	for _, path := range []string{"/v1/topics/t", "/v1/groups/g"} {
		var want, got any
		_ = json.Unmarshal(r.get(path).body, &want)
		_ = json.Unmarshal(other.get(path).want(http.StatusOK).body, &got)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, was %v", path, got, want)
		}
	}
	if a := other.receiveBy("g", "t"); a.status != http.StatusForbidden {
		t.Errorf("a group that may not consume: %d %s", a.status, a.body)
	}
}

// One message as the body, for scripts.
func TestReceiveRaw(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", "").want(http.StatusOK)
	const path, raw = "/v1/groups/g/topics/t/messages:receive", "Accept: application/octet-stream"
	r.post(path, "", raw).want(http.StatusNoContent)
	r.post(
		"/v1/topics/t/messages",
		"\x00raw\xff",
		"Content-Type: image/png",
		"Roquet-Tag: a",
		"Roquet-Group: g1",
	).want(
		http.StatusCreated,
	)
	a := r.post(path, `{"wait":"10s"}`, raw).want(http.StatusOK)
	if string(a.body) != "\x00raw\xff" || a.header.Get("Roquet-Tag") != "a" || a.header.Get("Roquet-Group") != "g1" {
		t.Errorf("%q %v", a.body, a.header)
	}
	ack := r.post("/v1/groups/g/messages:ack", handles(a.header.Get("Roquet-Receipt-Handle")))
	if ack.value("results.0.error") != nil {
		t.Errorf("%s", ack.body)
	}
}

// A stream gives messages as they come, in both forms, and acknowledges them when asked to.
func TestStream(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", "").want(http.StatusOK)
	for _, form := range [][2]string{{"*/*", ""}, {"text/event-stream", "data: "}} {
		accept, prefix := form[0], form[1]
		group := fmt.Sprintf("g%d", len(accept))
		ctx, leave := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet,
			"http://"+r.addr+"/v1/groups/"+group+"/topics/t/messages:stream?ack=AUTO&invisible=60s", nil)
		req.Header.Set("Accept", accept)
		resp, err := r.http.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		lines := bufio.NewScanner(resp.Body)
		for i := range 3 {
			want := fmt.Sprint(group, i)
			r.post("/v1/topics/t/messages", want).want(http.StatusCreated)
			for got := ""; got != want; {
				if !lines.Scan() {
					t.Fatal(lines.Err())
				}
				text, ok := strings.CutPrefix(lines.Text(), prefix)
				if !ok || text == "" || text == ":" {
					continue
				}
				var v any
				if err := json.Unmarshal([]byte(text), &v); err != nil {
					t.Fatalf("%v: %s", err, text)
				}
				got, _ = pick(v, "result.text").(string)
			}
		}
		leave()
		resp.Body.Close()
	}
	lag := r.get("/v1/groups/g3/lag").want(http.StatusOK)
	for deadline := time.Now().Add(10 * time.Second); lag.text("total") != "3" && time.Now().Before(deadline); {
		lag = r.get("/v1/groups/g3/lag")
	}
	if lag.text("total") != "3" { // the other stream's messages
		t.Errorf("lag %s", lag.body)
	}
}

// The server stops without waiting for those who wait.
func TestStopEndsHeldRequests(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", "").want(http.StatusOK)
	done := make(chan *answer, 2)
	go func() { done <- r.post("/v1/groups/g/topics/t/messages:receive", `{"wait":"30s"}`) }()
	go func() { done <- r.get("/v1/groups/s/topics/t/messages:stream") }()
	for r.get("/v1/groups/g").status != http.StatusOK || r.get("/v1/groups/s").status != http.StatusOK {
		continue // they are not there yet
	}
	began := time.Now()
	r.stop()
	for range 2 {
		select {
		case a := <-done:
			a.want(http.StatusOK)
		case <-time.After(10 * time.Second):
			t.Fatal("a request did not end")
		}
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("stopping took %v", took)
	}
}

// A message group is received in order, one at a time, by an orderly group, and by every group of a FIFO topic: case
// C111.
func TestOrderlyGroup(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/groups/g", `{"orderly":true}`).want(http.StatusOK)
	r.do(http.MethodPut, "/v1/topics/t", `{}`).want(http.StatusOK)
	receivedInOrder(r, "g", "t")
	r.do(http.MethodPut, "/v1/topics/fifo", `{"messageType":"FIFO"}`).want(http.StatusOK)
	receivedInOrder(r, "default", "fifo")
	r.post("/v1/topics/fifo/messages", "x").refused(http.StatusBadRequest, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE")
}

// The messages of a group are in one queue: also the first, with which the topic is created, and a dead letter that is
// published again.
func TestMessageGroupsKeepTheirQueue(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for range 8 {
		a := r.post("/v1/topics/t/messages", "x", "Roquet-Group: order-4").want(http.StatusCreated)
		if a.value("queueId") != 2.0 { // of four: as RocketMQ has it
			t.Errorf("stored %s", a.body)
		}
	}
	handle := r.receive("g", "t", `{"wait":"10s"}`).text("messages.0.receiptHandle")
	r.post("/v1/groups/g/messages:deadLetter", handles(handle)).want(http.StatusOK)
	r.post("/v1/groups/g/dlq/messages:redrive", "").want(http.StatusOK)
	if a := r.get(
		"/v1/topics/t/queues/2/messages?offset=8",
	).want(
		http.StatusOK,
	); a.text(
		"messages.0.group",
	) != "order-4" {
		t.Errorf("redriven: %s", a.body)
	}
	lines := strings.Repeat(`{"text":"x","group":"order-4"}`+"\n", 20)
	a := r.post("/v1/topics/new/messages:batch", lines, "Content-Type: application/x-ndjson").want(http.StatusOK)
	for i, line := range strings.Split(strings.TrimSpace(string(a.body)), "\n") {
		if !strings.Contains(line, fmt.Sprintf(`"queueId":2,"offset":"%d"`, i)) {
			t.Errorf("line %d is stored as %s", i, line)
		}
	}
}

// A priority is a message's like all else, and decides who is first.
func TestPriority(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", `{"messageType":"PRIORITY","queues":4}`).want(http.StatusOK)
	const publish = "/v1/topics/t/messages"
	r.post(publish, "low", "Roquet-Priority: 0").want(http.StatusCreated)
	r.post(publish, `{"text":"high","priority":3}`, asJSON).want(http.StatusCreated)
	batch := r.post(publish+":batch", `{"messages":[{"text":"a","priority":1},{"text":"b","priority":2}]}`)
	if batch.value("results.0.queueId") != 1.0 || batch.value("results.1.queueId") != 2.0 {
		t.Errorf("batch %s", batch.body)
	}
	r.post(publish, "none").refused(http.StatusBadRequest, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE")
	r.post(publish, "x", "Roquet-Priority: high").refused(http.StatusBadRequest, "BAD_REQUEST")
	r.post(publish, "x", "Roquet-Priority: -1").refused(http.StatusBadRequest, "BAD_REQUEST")
	for priority, text := range map[int]string{3: "high", 0: "low"} {
		path := fmt.Sprintf("/v1/topics/t/queues/%d/messages?offset=0", priority)
		if a := r.get(path).want(http.StatusOK); a.text("messages.0.text") != text ||
			fmt.Sprint(a.value("messages.0.priority")) != fmt.Sprint(priority) {
			t.Errorf("queue %d: %s", priority, a.body)
		}
	}
	if a := r.receive("g", "t", `{"wait":"10s"}`); a.text("messages.0.text") != "high" {
		t.Errorf("first: %s", a.body)
	}
	a := r.post("/v1/groups/h/topics/t/messages:receive", `{"wait":"10s"}`, "Accept: application/octet-stream")
	if string(a.body) != "high" || a.header.Get("Roquet-Priority") != "3" {
		t.Errorf("first: %q %v", a.body, a.header)
	}
}

func receivedInOrder(r *rest, group, topic string) {
	t := r.t
	t.Helper()
	for i := range 3 {
		r.post("/v1/topics/"+topic+"/messages", fmt.Sprint(i), "Roquet-Group: customer-7").want(http.StatusCreated)
	}
	for i := range 3 {
		a := r.receive(group, topic, `{"wait":"10s"}`)
		if a.text("messages.0.text") != fmt.Sprint(i) {
			t.Fatalf("message %d: %s", i, a.body)
		}
		if b := r.receive(group, topic, `{}`); b.value("messages.0") != nil {
			t.Errorf("received past message %d: %s", i, b.body)
		}
		r.post("/v1/groups/"+group+"/messages:ack", handles(a.text("messages.0.receiptHandle")))
	}
}

// TestMessagesKeepTheirTrace: whichever way a message comes in, it has its request's trace. What W3C forbids in a header is
// dropped, and two headers of a name are one list.
func TestMessagesKeepTheirTrace(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", `{"readQueues":1,"writeQueues":1}`, asJSON).want(http.StatusOK)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	trace := []string{
		"traceparent: " + parent,
		"tracestate: a=1",
		"tracestate: b=2",
		"tracestate: c=ü",
		"baggage: user=J%C3%BCrgen",
	}
	send := func(to, body, typ string) *answer {
		return r.post("/v1/topics/t/messages"+to, body, append(trace, typ)...)
	}
	send("", "raw", "Content-Type: text/plain").want(http.StatusCreated)
	send("", `{"text":"json"}`, asJSON).want(http.StatusCreated)
	send(":batch", `{"messages":[{"text":"batch"},{"text":"of two"}]}`, asJSON).want(http.StatusOK)
	send(":batch", `{"text":"line"}`, "Content-Type: application/x-ndjson").want(http.StatusOK)
	half := send(":prepare", `{"text":"prepared"}`, asJSON).want(http.StatusCreated)
	r.post("/v1/transactions/"+half.text("transactionId")+":commit", "").want(http.StatusOK)
	all := r.get("/v1/topics/t/queues/0/messages").want(http.StatusOK)
	for i := range 6 {
		at := fmt.Sprintf("messages.%d.properties.", i)
		got := []string{all.text(at + "traceparent"), all.text(at + "tracestate"), all.text(at + "baggage")}
		if !slices.Equal(got, []string{parent, "a=1,b=2", "user=J%C3%BCrgen"}) {
			t.Errorf("message %d has %q", i, got)
		}
	}
}

// A transaction about which nobody decided in time is parked, is refused with what resumes it, and can be decided then.
func TestParkedTransactionResumes(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	set := func(values string) {
		r.do(http.MethodPatch, "/v1/config", `{"values":{`+values+`}}`, asJSON).want(http.StatusOK)
	}
	set(`"transactionTimeOut":"20","transactionCheckInterval":"20","transactionCheckMax":"1"`)
	r.do(http.MethodPut, "/v1/topics/t", "").want(http.StatusOK)
	hb := &protocol.HeartbeatData{ClientID: "c", ProducerDataSet: []protocol.ProducerData{{GroupName: "p"}}}
	r.call(protocol.HeartBeat, nil, protocol.EncodeBody(hb)) // and does not answer when it is asked
	r.call(protocol.SendMessageV2, &protocol.SendMessageRequestHeader{
		ProducerGroup: "p", Topic: "t", DefaultTopic: "TBW102", DefaultTopicQueueNums: 4, BornTimestamp: 1,
		SysFlag: message.TransactionPrepared, Properties: "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01U1\x02",
	}, []byte("half"))
	const parking = "/v1/topics/TRANS_CHECK_MAX_TIME_TOPIC/queues/0/messages"
	for parked := r.get(parking); !strings.Contains(string(parked.body), `"half"`); parked = r.get(parking) {
		continue // not yet
	}
	late := r.post("/v1/transactions/U1:commit?topic=t", "").want(http.StatusConflict).text("message")
	_, id, _ := strings.Cut(late, "msgId ")
	set(`"transactionTimeOut":"3600000"`)
	resume := "/v1/transactions/" + id + ":resume"
	r.post(resume, "").want(http.StatusOK)
	r.post(resume, "").want(http.StatusBadRequest)
	r.post("/v1/transactions/no:resume", "").refused(http.StatusBadRequest, "BAD_REQUEST")
	r.post("/v1/transactions/U1:commit?topic=t", "").want(http.StatusOK)
	if a := r.receive("g", "t", `{"wait":"10s"}`); a.text("messages.0.text") != "half" {
		t.Errorf("received %s, refused before: %s", a.body, late)
	}
}

// A prepared message waits for its commit, a delayed one can be recalled, and both say what is wrong.
func TestTransactionsAndDelays(t *testing.T) {
	t.Parallel()
	r := start(t, func(cfg *config.Config) { cfg.Message.Recall = true })
	prepare := func() string {
		return r.post(
			"/v1/topics/t/messages:prepare",
			`{"text":"half"}`,
		).want(
			http.StatusCreated,
		).text(
			"transactionId",
		)
	}
	commit, rollback := prepare(), prepare()
	if n := r.count("t"); n != "0" {
		t.Errorf("%s messages before the commit", n)
	}
	r.post("/v1/transactions/"+rollback+":rollback", "").want(http.StatusOK)
	r.post("/v1/transactions/"+commit+":commit", "").want(http.StatusOK)
	r.post(
		"/v1/transactions/"+rollback+":rollback",
		"",
	).want(
		http.StatusOK,
	) // as a client does that lost the answer
	for id, other := range map[string]string{rollback: ":commit", commit: ":rollback"} { // the first decision wins
		a := r.post("/v1/transactions/"+id+other, "").want(http.StatusConflict)
		if a.text("details.0.reason") != "TRANSACTION_DECIDED" ||
			!strings.Contains(a.text("message"), "decided before: ") {
			t.Errorf("%s%s: %s", id, other, a.body)
		}
	}
	if a := r.receive("g", "t", `{"wait":"10s"}`); a.text("messages.0.text") != "half" {
		t.Errorf("received %s", a.body)
	}
	later := r.post("/v1/topics/t/messages", "later", "Roquet-Delay: 1h").want(http.StatusCreated)
	recall := `{"recallHandle":"` + later.text("recallHandle") + `"}`
	if a := r.post(
		"/v1/topics/t/messages:recall",
		recall,
	).want(
		http.StatusOK,
	); a.text(
		"messageId",
	) != later.text(
		"messageId",
	) {
		t.Errorf("recalled %s", a.body)
	}
	soon := r.post("/v1/topics/d/messages", `{"text":"soon","delay":"1s"}`, asJSON).want(http.StatusCreated)
	began := time.Now()
	a := r.receive("g", "d", `{"wait":"20s"}`)
	if a.text("messages.0.messageId") != soon.text("messageId") || time.Since(began) < 500*time.Millisecond {
		t.Errorf("after %v: %s", time.Since(began), a.body)
	}
}
