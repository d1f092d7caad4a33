// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// C016: an empty body is refused, whichever way it comes, and nothing is stored.
func TestC016EmptyBody(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", "").want(http.StatusOK)
	const path = "/v1/topics/t/messages"
	r.post(path, "").refused(http.StatusBadRequest, "MESSAGE_BODY_EMPTY")
	r.post(path, "", "Content-Type: text/plain").refused(http.StatusBadRequest, "MESSAGE_BODY_EMPTY")
	r.post(path, `{}`, asJSON).refused(http.StatusBadRequest, "MESSAGE_BODY_EMPTY")
	r.post(path, `{"text":""}`, asJSON).refused(http.StatusBadRequest, "MESSAGE_BODY_EMPTY")
	r.post(path+":prepare", `{"body":""}`).refused(http.StatusBadRequest, "MESSAGE_BODY_EMPTY")
	batch := r.post(path+":batch", `{"messages":[{"text":""}]}`).want(http.StatusOK)
	checkError(t, batch.value("results.0.error"), "MESSAGE_BODY_EMPTY")
	lines := r.post(path+":batch", "{}\n", "Content-Type: application/x-ndjson").want(http.StatusOK).lines()
	checkError(t, pick(lines[0], "error"), "MESSAGE_BODY_EMPTY")
	if n := r.count("t"); n != "0" {
		t.Errorf("%s messages stored", n)
	}
}

// C018, C124, C125, C127: one rule for names on all doors.
func TestC018Names(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for name, status := range map[string]int{
		"a%7Cb":                    http.StatusCreated,
		"%25RETRYx":                http.StatusCreated,
		strings.Repeat("x", 127):   http.StatusCreated,
		strings.Repeat("x", 128):   http.StatusBadRequest,
		strings.Repeat("x", 255):   http.StatusBadRequest,
		"a.b":                      http.StatusBadRequest,
		"..%2F..%2Fx":              http.StatusBadRequest,
		"a%2Fb":                    http.StatusBadRequest,
		"a%5Cb":                    http.StatusBadRequest,
		"x:1":                      http.StatusBadRequest,
		"%20":                      http.StatusBadRequest,
		"TBW102":                   http.StatusBadRequest,
		"RMQ_SYS_TRANS_HALF_TOPIC": http.StatusBadRequest,
	} {
		a := r.post("/v1/topics/"+name+"/messages", "x")
		if a.want(status); status == http.StatusBadRequest {
			a.refused(status, "ILLEGAL_TOPIC")
		}
		if put := r.do(
			http.MethodPut,
			"/v1/topics/"+name,
			"",
		); (put.status == http.StatusOK) != (status == http.StatusCreated) {
			t.Errorf("%s: publish %d, create %d: %s", name, status, put.status, put.body)
		}
	}
	r.call(protocol.GetTopicConfig, &protocol.GetTopicConfigRequestHeader{Topic: "a|b"}, nil)
	for group, status := range map[string]int{
		strings.Repeat("g", 120): http.StatusOK, strings.Repeat("g", 121): http.StatusBadRequest,
		"a.b": http.StatusBadRequest, "a%7Cb": http.StatusOK,
	} {
		r.post("/v1/groups/"+group+"/topics/a%7Cb/messages:receive", "").want(status)
	}
}

// C034, C036: properties are the same whichever way in and out.
func TestC034Properties(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", `{"queues":1}`).want(http.StatusOK)
	properties := map[string]string{
		"location": "Beijing,China", "q": "a=b=c", "spaces": "   ", "emoji": "🚀", "Case": "kept",
	}
	properties["empty"] = ""
	in, _ := json.Marshal(
		map[string]any{"text": "x", "tag": "red", "keys": []string{"k1", "k2"}, "properties": properties},
	)
	r.post("/v1/topics/t/messages", string(in), asJSON).want(http.StatusCreated)
	encoded := message.AppendProperty(nil, message.PropertyTags, "red")
	encoded = message.AppendProperty(encoded, message.PropertyKeys, "k1 k2")
	for name, value := range properties {
		encoded = message.AppendProperty(encoded, name, value)
	}
	r.call(protocol.SendMessageV2, &protocol.SendMessageRequestHeaderV2{
		ProducerGroup: "p", Topic: "t", BornTimestamp: 1, Properties: string(encoded),
	}, []byte("x"))
	r.post(
		"/v1/topics/t/messages",
		"x",
		"Roquet-Tag: red",
		"Roquet-Keys: k1 k2",
		"Roquet-Property-location: Beijing,China",
		"Roquet-Property-q: a=b=c",
		"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	).want(
		http.StatusCreated,
	)

	delete(properties, "empty") // an empty value is dropped, as by all doors
	all := r.get("/v1/topics/t/queues/0/messages").want(http.StatusOK)
	for i := range 3 {
		if got := all.value(fmt.Sprintf("messages.%d.properties.empty", i)); got != nil {
			t.Errorf("message %d: empty is %q", i, got)
		}
		at := fmt.Sprintf("messages.%d.", i)
		if all.text(at+"tag") != "red" || all.text(at+"keys.1") != "k2" {
			t.Errorf("message %d: %s", i, all.body)
		}
		for name, want := range properties {
			if got := all.value(at + "properties." + name); i < 2 && got != want {
				t.Errorf("message %d: %s is %q, want %q", i, name, got, want)
			}
		}
	}
	if all.text("messages.2.properties.location") != "Beijing,China" ||
		all.text("messages.2.properties.traceparent")[:2] != "00" {
		t.Errorf("headers: %s", all.body)
	}
	pull := r.call(protocol.PullMessage, &protocol.PullMessageRequestHeader{
		ConsumerGroup:  "TOOLS_CONSUMER",
		Topic:          "t",
		MaxMsgNums:     1,
		SysFlag:        4,
		Subscription:   "*",
		ExpressionType: "TAG",
	}, nil)
	stored, err := message.Decode(pull.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range properties {
		if got, ok := message.Property(stored.Properties, name); !ok || got != want {
			t.Errorf("by remoting %s is %q (%v), want %q", name, got, ok, want)
		}
	}
}

// C037: the limit is exact, the same whichever way a body comes, and named with the size.
func TestC037TooLarge(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	r := start(t, func(cfg *config.Config) { cfg.Message.MaxSizeBytes = limit })
	for _, n := range []int{limit - 1, limit, limit + 1} {
		body := strings.Repeat("x", n)
		inJSON, _ := json.Marshal(map[string]string{"text": body})
		inBase64, _ := json.Marshal(map[string]string{"body": base64.StdEncoding.EncodeToString([]byte(body))})
		for _, a := range []*answer{
			r.post("/v1/topics/t/messages", body), r.post("/v1/topics/t/messages", string(inJSON), asJSON),
			r.post("/v1/topics/t/messages", string(inBase64), asJSON),
		} {
			if n <= limit {
				a.want(http.StatusCreated)
				continue
			}
			a.refused(http.StatusRequestEntityTooLarge, "MESSAGE_BODY_TOO_LARGE")
			if text := a.text("message"); !strings.Contains(text, "100000") || !strings.Contains(text, "100001") {
				t.Errorf("the text names no numbers: %s", text)
			}
		}
		line := r.post(
			"/v1/topics/t/messages:batch",
			string(inJSON),
			"Content-Type: application/x-ndjson",
		).want(
			http.StatusOK,
		).lines()
		if refused := pick(line[0], "error") != nil; refused != (n > limit) {
			t.Errorf("%d bytes in a batch: %v", n, line)
		}
	}
	r.post(
		"/v1/topics/t/messages",
		strings.Repeat("x", 300_000),
	).refused(
		http.StatusRequestEntityTooLarge,
		"PAYLOAD_TOO_LARGE",
	)
	lines := r.post("/v1/topics/t/messages:batch", "{\"text\":\"a\"}\n\""+strings.Repeat("x", 300_000)+"\"\n{}",
		"Content-Type: application/x-ndjson").want(http.StatusOK).lines()
	if len(lines) != 2 || pick(lines[0], "messageId") == nil {
		t.Errorf("a line that is too long: %v", lines)
	}
	checkError(t, pick(lines[1], "error"), "PAYLOAD_TOO_LARGE")
}

// C071, C074: what is negative or too far ahead is refused, whichever way it is said, with the value; what is past
// is at once.
func TestC074DeliveryTimes(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for due, says := range map[string]string{
		`"delay":"-5s"`: "-5000 ms", `"delay":"-0.001s"`: "-1 ms", `"deliverAt":"1969-12-31T23:59:59Z"`: "-1000 ms",
		`"delay":"3456001s"`: "asked for 3456001000 ms", `"delay":"315576000000s"`: "max is 3456000000 ms",
		`"deliverAt":"9999-12-31T23:59:59Z"`: "max is 3456000000 ms",
		`"delay":"0s"`:                       "", `"deliverAt":"1970-01-01T00:00:00Z"`: "", `"deliverAt":"2020-01-01T00:00:00Z"`: "",
	} {
		body := `{"text":"x",` + due + `}`
		a := r.post("/v1/topics/t/messages", body, asJSON)
		line := r.post("/v1/topics/t/messages:batch", body, "Content-Type: application/x-ndjson").
			want(http.StatusOK).lines()[0]
		if says == "" {
			if a.want(http.StatusCreated); pick(line, "error") != nil {
				t.Errorf("%s in a batch: %v", due, line)
			}
			continue
		}
		a.refused(http.StatusBadRequest, "ILLEGAL_DELIVERY_TIME")
		if text := a.text("message"); !strings.Contains(text, says) {
			t.Errorf("%s: %s, want %q in it", due, text, says)
		}
		checkError(t, pick(line, "error"), "ILLEGAL_DELIVERY_TIME")
	}
	r.post("/v1/topics/t/messages", "x", "Roquet-Delay: -5s").refused(http.StatusBadRequest, "ILLEGAL_DELIVERY_TIME")
	// What is no header of a message is not passed over: the message would be delivered at once.
	a := r.post("/v1/topics/t/messages", "x", "Roquet-DeliverAt: 2036-01-01T00:00:00Z").
		refused(http.StatusBadRequest, "BAD_REQUEST")
	if !strings.Contains(a.text("message"), "Roquet-Deliverat") {
		t.Errorf("%s, want the header's name in it", a.body)
	}
}

// C040: any number of topics is listed, page by page.
func TestC040Pages(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	list := &protocol.CreateTopicListRequestBody{}
	for i := range 2500 {
		list.TopicConfigList = append(list.TopicConfigList, protocol.TopicConfig{
			TopicName: fmt.Sprintf("topic-%d", i), ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6,
		})
	}
	r.call(protocol.UpdateAndCreateTopicList, nil, protocol.EncodeBody(list))
	seen, pages, token := map[string]bool{}, 0, ""
	for {
		a := r.get("/v1/topics?pageSize=1000&pageToken=" + token).want(http.StatusOK)
		topics, _ := a.value("topics").([]any)
		for _, topic := range topics {
			seen[fmt.Sprint(pick(topic, "name"))] = true
		}
		pages++
		if token = a.text("nextPageToken"); token == "" {
			if total, _ := a.value("total").(float64); int(total) != len(seen) || total < 2500 {
				t.Errorf("%v topics in all, %d seen", total, len(seen))
			}
			break
		}
	}
	if pages != 3 {
		t.Errorf("%d pages", pages)
	}
	for _, bad := range []string{"pageSize=1001", "pageSize=-1", "pageSize=x", "pageToken=x", "pageToken=-1"} {
		r.get("/v1/groups?"+bad).refused(http.StatusBadRequest, "BAD_REQUEST")
	}
}

// C194: 64-bit numbers are strings in answers; requests have them in both forms.
func TestC194Numbers(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.post("/v1/topics/t/messages", "x").want(http.StatusCreated).text("offset")
	r.do(http.MethodPut, "/v1/groups/g", "").want(http.StatusOK)
	for _, offset := range []string{`"1"`, `1`, `"9007199254740993"`, `9007199254740993`} {
		a := r.do(http.MethodPut, "/v1/groups/g/topics/t/offsets", `{"to":"OFFSET","queueId":0,"offset":`+offset+`}`)
		if strings.Contains(offset, "9007199254740993") { // beyond the queue, and told so exactly
			a.refused(http.StatusBadRequest, "BAD_REQUEST")
			if !strings.Contains(a.text("message"), "9007199254740993") {
				t.Errorf("offset %s was understood as another: %s", offset, a.body)
			}
			continue
		}
		if got := a.want(http.StatusOK).text("queues.0.offset"); got != "1" {
			t.Errorf("offset %q", got)
		}
	}
}

// C196: a path is decoded exactly once.
func TestC196PathDecodedOnce(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for path, name := range map[string]string{
		"%25RETRY%25g1": "%RETRY%g1", "a%7Cb": "a|b", "a%257Cb": "a%7Cb", "plain": "plain", "%25%25": "%%",
	} {
		if got := r.do(http.MethodPut, "/v1/topics/"+path, "").want(http.StatusOK).text("name"); got != name {
			t.Errorf("PUT %s made %s", path, got)
		}
		if got := r.get("/v1/topics/" + path).want(http.StatusOK).text("name"); got != name {
			t.Errorf("GET %s is %s", path, got)
		}
		r.post("/v1/topics/"+path+"/messages", "x").want(http.StatusCreated)
		if n := r.count(path); n != "1" {
			t.Errorf("%s has %s messages", path, n)
		}
	}
}

// C197: a colon in the last segment belongs to it.
func TestC197Colon(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for _, id := range []string{"x:1", "a:b:c", ":x", "x:", "x:ack", "x:trace"} {
		a := r.get("/v1/messages/"+id).refused(http.StatusNotFound, "MESSAGE_NOT_FOUND")
		if !strings.Contains(a.text("message"), "no message "+id) {
			t.Errorf("%s: %s", id, a.body)
		}
	}
	r.post("/v1/topics/t/messages", `{"text":"x","keys":["x:1"]}`, asJSON).want(http.StatusCreated)
	if got := r.get("/v1/topics/t/messages?key=x:1").want(http.StatusOK).text("messages.0.keys.0"); got != "x:1" {
		t.Errorf("key %q", got)
	}
}

// C198: the same failure has one form and one status, on its own, in a batch and in a stream.
func TestC198OneErrorForm(t *testing.T) {
	t.Parallel()
	r := start(t, func(cfg *config.Config) { cfg.Topic.AutoCreateTopic = false })
	const reason = "TOPIC_NOT_FOUND"
	for _, a := range []*answer{
		r.post("/v1/topics/no/messages", "x"),
		r.post("/v1/topics/no/messages", `{"text":"x"}`, asJSON),
		r.post("/v1/topics/no/messages:prepare", `{"text":"x"}`),
		r.post("/v1/groups/g/topics/no/messages:receive", ""),
		r.post("/v1/groups/g/topics/no/messages:receive", "", "Accept: application/octet-stream"),
		r.get("/v1/groups/g/topics/no/messages:stream"),
		r.do(http.MethodGet, "/v1/groups/g/topics/no/messages:stream", "", "Accept: text/event-stream"),
		r.get("/v1/topics/no"), r.get("/v1/topics/no/stats"), r.get("/v1/topics/no/queues/0/messages"),
	} {
		a.refused(http.StatusNotFound, reason)
		if a.header.Get("Content-Type") != "application/json" {
			t.Errorf("content type %q", a.header.Get("Content-Type"))
		}
	}
	checkError(
		t,
		r.post("/v1/topics/no/messages:batch", `{"messages":[{"text":"x"}]}`).value("results.0.error"),
		reason,
	)
	lines := r.post("/v1/topics/no/messages:batch", `{"text":"x"}`, "Content-Type: application/x-ndjson").lines()
	checkError(t, pick(lines[0], "error"), reason)
	r.get("/v1/groups/no").refused(http.StatusNotFound, "CONSUMER_GROUP_NOT_FOUND")
	r.get("/v1/groups/no/lag").refused(http.StatusNotFound, "CONSUMER_GROUP_NOT_FOUND")
	r.get("/v1/groups/no/dlq/messages").refused(http.StatusNotFound, "CONSUMER_GROUP_NOT_FOUND")
}

// C199: what is malformed is the client's fault.
func TestC199Malformed(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", "").want(http.StatusOK)
	r.do(http.MethodPut, "/v1/groups/g", "").want(http.StatusOK)
	const (
		publish = "/v1/topics/t/messages"
		receive = "/v1/groups/g/topics/t/messages:receive"
		ack     = "/v1/groups/g/messages:ack"
	)
	for _, c := range []struct {
		method, path, body, contentType string
		status                          int
	}{
		{"POST", publish, `{`, "application/json", 400},
		{"POST", publish, `{"text":"x"} {"text":"y"}`, "application/json", 400},
		{"POST", publish, `{"txt":"x"}`, "application/json", 400},
		{"POST", publish, `{"text":"x","body":"eA=="}`, "application/json", 400},
		{"POST", publish, `{"body":"%"}`, "application/json", 400},
		{"POST", publish, `{"text":"x","delay":"soon"}`, "application/json", 400},
		{"POST", publish, `{"text":"x","delay":"9999999s"}`, "application/json", 400},
		{"POST", publish, `{"text":"x","tag":"a|b"}`, "application/json", 400},
		{"POST", publish, `{"text":"x","properties":{"TAGS":"x"}}`, "application/json", 400},
		{"POST", publish, `{"text":"x","properties":{"a":"\u0001"}}`, "application/json", 400},
		{"POST", publish, `["x"]`, "application/json", 400},
		{"POST", publish, "\xff", "application/json", 400},
		{"POST", publish + ":batch", `{"messages":[]}`, "", 400},
		{"POST", publish + ":batch", `{"messages":[{"text":"a"}]} {}`, "", 400},
		{"POST", publish + ":batch", "x", "text/csv", 415},
		{"POST", publish + ":recall", `{"recallHandle":"x"}`, "", 400},
		{"POST", "/v1/transactions/x:commit", "", "", 400},
		{"POST", "/v1/transactions/dCBY:commit", "", "", 400},
		{"POST", receive, `{"maxMessages":33}`, "", 400},
		{"POST", receive, `{"maxMessages":-1}`, "", 400},
		{"POST", receive, `{"wait":"31s"}`, "", 400},
		{"POST", receive, `{"invisible":"1ms"}`, "", 400},
		{"POST", receive, `{"wait":5}`, "", 400},
		{"POST", receive, `{"sql":"a = "}`, "", 400},
		{"POST", receive, `{}`, "text/xml", 415},
		{"POST", ack, `{}`, "", 400},
		{"POST", ack, ``, "", 400},
		{"GET", receive, "", "", 405},
		{"GET", ack, "", "", 405},
		{"DELETE", publish, "", "", 405},
		{"POST", "/v1/topics/t", "", "", 405},
		{"PUT", "/v1/cluster", "", "", 405},
		{"GET", "/v1/groups/g/topics/t/messages:stream?invisible=x", "", "", 400},
		{"GET", "/v1/topics/t/queues/x/messages", "", "", 400},
		{"GET", "/v1/topics/t/queues/999/messages", "", "", 400},
		{"GET", "/v1/topics/t/queues/0/messages?max=33", "", "", 400},
		{"GET", "/v1/topics/t/messages", "", "", 400},
		{"GET", "/v1", "", "", 404},
		{"GET", "/", "", "", 404},
		{"GET", "/favicon.ico", "", "", 404},
		{"PUT", "/v1/topics/t", `{"queues":-1}`, "", 400},
		{"PUT", "/v1/topics/t", `{"attributes":{"no.such":"x"}}`, "", 400},
		{"PUT", "/v1/topics/t", `{"attributes":{"a,b":"x"}}`, "", 400},
		{"PUT", "/v1/groups/g/topics/t/offsets", `{}`, "", 400},
		{"PUT", "/v1/groups/g/topics/t/offsets", `{"to":"OFFSET"}`, "", 400},
		{"PUT", "/v1/groups/g/topics/t/offsets", `{"to":"TIMESTAMP"}`, "", 400},
		{"PUT", "/v1/groups/g/topics/t/offsets", `{"to":"LATEST","queueId":999}`, "", 400},
		{"PATCH", "/v1/config", `{"values":{"a=b":"c"}}`, "", 400},
		{"PATCH", "/v1/config", `{"values":{"noSuchKey":"c"}}`, "", 400},
		{"PATCH", "/v1/config", `{"values":{"listenPort":"1"}}`, "", 403},
	} {
		a := r.do(c.method, c.path, c.body, "Content-Type: "+c.contentType)
		if a.status != c.status {
			t.Errorf("%s %s %s: status %d, want %d: %s", c.method, c.path, c.body, a.status, c.status, a.body)
		}
		if c.status == http.StatusMethodNotAllowed && a.header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow header", c.method, c.path)
		}
		if reason, _ := a.value("details.0.reason").(string); reason == "" {
			t.Errorf("%s %s: no reason: %s", c.method, c.path, a.body)
		}
	}
	raw := func(request string) string {
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(conn, request)
		b, _ := io.ReadAll(conn)
		line, _, _ := strings.Cut(string(b), "\r\n")
		return line
	}
	for request, want := range map[string]string{
		"GET / HTTP/9.9\r\n\r\n":                                                                "505",
		"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n":                                                  "400",
		"GET / HTTP/1.1\r\nConnection: close\r\n\r\n":                                           "400", // no host
		"POST /v1/topics/t/messages HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n":           "400",
		"GET /healthz HTTP/1.0\r\n\r\n":                                                         "200",
		"GET /healthz HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 200_000) + "\r\n\r\n":   "431",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":                            "200",
		"GET /v1/topics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx": "200",
	} {
		if got := raw(request); !strings.Contains(got, want) {
			t.Errorf("%.60q: %q, want %s", request, got, want)
		}
	}
}

// C201: a key that no header can carry is in the JSON and in no header.
func TestC201ControlBytes(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", `{"queues":1}`).want(http.StatusOK)
	const key = "a\x00b\r\nInjected:\tx-é-\xff"
	properties := message.AppendProperty(nil, message.PropertyKeys, key)
	properties = message.AppendProperty(properties, "bad\nname", "x")
	properties = message.AppendProperty(properties, "good", "fine")
	properties = message.AppendProperty(properties, message.PropertyTags, "t\r\nx")
	r.call(protocol.SendMessageV2, &protocol.SendMessageRequestHeaderV2{
		ProducerGroup: "p", Topic: "t", BornTimestamp: 1, Properties: string(properties),
	}, []byte("\xff\xfe"))
	a := r.get("/v1/topics/t/queues/0/messages").want(http.StatusOK)
	if got := a.text("messages.0.keys.0"); !strings.HasPrefix(got, "a\x00b") {
		t.Errorf("keys: %s", a.body)
	}
	if got := a.text("messages.0.tag"); got != "t\r\nx" {
		t.Errorf("tag %q", got)
	}
	if got := a.text("messages.0.body"); got != "//4=" {
		t.Errorf("body %q", got)
	}
	raw := r.post(
		"/v1/groups/g/topics/t/messages:receive",
		"",
		"Accept: application/octet-stream",
	).want(
		http.StatusOK,
	)
	if string(raw.body) != "\xff\xfe" || raw.header.Get("Roquet-Keys") != "" || raw.header.Get("Roquet-Tag") != "" ||
		raw.header.Get("Injected") != "" || raw.header.Get("Roquet-Property-good") != "fine" {
		t.Errorf("%q %v", raw.body, raw.header)
	}
}

// C202: enums by name or number, in JSON and in the query; others are refused.
func TestC202Enums(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for value, status := range map[string]int{`"FIFO"`: 200, `2`: 200, `"fifo"`: 400, `"NOPE"`: 400, `99`: 400, `-1`: 400} {
		a := r.do(http.MethodPut, "/v1/topics/t", `{"messageType":`+value+`}`).want(status)
		if status == http.StatusOK && a.text("messageType") != "FIFO" {
			t.Errorf("%s: %s", value, a.body)
		}
	}
	for value, status := range map[string]int{`"READ"`: 200, `4`: 200, `"read"`: 400, `3`: 400} {
		r.do(http.MethodPut, "/v1/topics/p", `{"permission":`+value+`}`).want(status)
	}
	for value, status := range map[string]int{"auto": 400, "NOPE": 400, "99": 400} {
		r.get("/v1/groups/g/topics/t/messages:stream?ack=" + value).want(status)
	}
	r.get("/v1/groups/g/topics/nope/messages:stream?ack=AUTO").want(http.StatusNotFound)
	r.get("/v1/groups/g/topics/nope/messages:stream?ack=2").want(http.StatusNotFound)
}

// A query parameter that the route does not have is refused, and the nearest one it has is named.
func TestUnknownQueryParameters(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", "").want(http.StatusOK)
	for _, tc := range []struct{ method, path, says string }{
		{http.MethodGet, "/v1/topics/t/messages?keys=a", `"keys"; the nearest known one is "key"`},
		{http.MethodGet, "/v1/topics?pagesize=2", `"pagesize"; the nearest known one is "pageSize"`},
		{http.MethodGet, "/v1/topics/t/queues/0/messages?ofset=1", `the nearest known one is "offset"`},
		{http.MethodGet, "/v1/groups/g/topics/t/messages:stream?ack=AUTO&tags=a", `the nearest known one is "tag"`},
		{http.MethodPost, "/v1/topics/t/messages?tag=a", `"tag": the route has none`},
		{http.MethodPost, "/v1/topics/t/messages:batch?%74ag=a", `"tag": the route has none`},
		{http.MethodDelete, "/v1/topics/t?force=true", `"force": the route has none`},
	} {
		a := r.do(tc.method, tc.path, "").refused(http.StatusBadRequest, "BAD_REQUEST")
		if !strings.Contains(a.text("message"), tc.says) {
			t.Errorf("%s: %s", tc.path, a.body)
		}
	}
	r.post("/v1/groups/g/topics/t/messages:receive", `{"wait":"31s"}`).
		refused(http.StatusBadRequest, "ILLEGAL_POLLING_TIME")
	r.post("/v1/groups/g/topics/t/messages:receive", `{"invisible":"0s"}`).
		refused(http.StatusBadRequest, "ILLEGAL_INVISIBLE_TIME")
	r.get("/v1/topics?pageSize=2").want(http.StatusOK)
	r.get("/v1/messages/x?topic=t").want(http.StatusNotFound)
	r.get("/healthz?verbose").want(http.StatusOK)
	r.get("/nowhere?a=b").want(http.StatusNotFound)
}

// Consumers of one group whose subscriptions differ are told of where the group's clients are listed.
func TestConflictsOfAGroup(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPut, "/v1/topics/t", "").want(http.StatusOK)
	other, err := remoting.NewClient(remoting.ClientConfig{Addr: r.addr, Language: protocol.LanguageGo})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for i, client := range []*remoting.Client{r.native, other} {
		hb := &protocol.HeartbeatData{ClientID: fmt.Sprint("c", i), ConsumerDataSet: []protocol.ConsumerData{{
			GroupName: "g", ConsumeType: protocol.ConsumePassively, MessageModel: protocol.Clustering,
			ConsumeFromWhere: protocol.ConsumeFromLastOffset, SubscriptionDataSet: []protocol.SubscriptionData{{
				Topic: "t", SubString: fmt.Sprint("tag", i), ExpressionType: protocol.ExpressionTag, SubVersion: 1,
			}},
		}}}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := client.Invoke(ctx, protocol.HeartBeat, nil, protocol.EncodeBody(hb)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/v1/groups/g", "/v1/groups/g/clients", "/v1/clients"} {
		if a := r.get(
			path,
		).want(
			http.StatusOK,
		); !strings.Contains(a.text("conflicts.0"), "c1") ||
			a.value("conflicts.1") != nil {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}
