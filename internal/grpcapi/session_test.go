// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// heartbeats are the bodies of the heartbeats that the broker got.
func (d *door) heartbeats() []protocol.HeartbeatData {
	d.broker.mu.Lock()
	defer d.broker.mu.Unlock()
	var all []protocol.HeartbeatData
	for _, c := range d.broker.calls {
		if c.Code == protocol.HeartBeat {
			hb, err := protocol.DecodeBody[protocol.HeartbeatData](c.Body)
			if err != nil {
				d.t.Fatal(err)
			}
			all = append(all, *hb)
		}
	}
	return all
}

func TestProducerSettings(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	sent := producer("normal", "transaction")
	sent.RequestTimeout = durationpb.New(3 * time.Second)
	sent.UserAgent = &v2.UA{Language: v2.Language_RUST, Version: "1"}
	sent.AccessPoint = endpoints("mq", 8081)
	stream, answer := d.connect(as(t, "p1"), sent)
	wantCode(t, answer.GetStatus(), v2.Code_OK)
	want, _ := proto.Clone(sent).(*v2.Settings)
	want.Metric = &v2.Metric{}
	want.GetPublishing().MaxBodySize, want.GetPublishing().ValidateMessageType = 4<<20, true
	want.BackoffPolicy = &v2.RetryPolicy{MaxAttempts: 3, Strategy: &v2.RetryPolicy_ExponentialBackoff{
		ExponentialBackoff: &v2.ExponentialBackoff{
			Initial: durationpb.New(10 * time.Millisecond), Max: durationpb.New(time.Second), Multiplier: 2,
		},
	}}
	if !proto.Equal(answer.GetSettings(), want) {
		t.Errorf("got  %v\nwant %v", answer.GetSettings(), want)
	}
	hbs := d.heartbeats()
	if len(hbs) != 1 || hbs[0].ClientID != "p1" || text(hbs[0].ProducerDataSet) != "[{normal} {transaction}]" {
		t.Errorf("heartbeats %+v", hbs)
	}
	// One answer for each time they are sent, none unasked (case C218).
	for range 3 {
		if err := stream.Send(
			&v2.TelemetryCommand{Command: &v2.TelemetryCommand_Settings{Settings: sent}},
		); err != nil {
			t.Fatal(err)
		}
		if answer, err := stream.Recv(); err != nil || answer.GetSettings() == nil {
			t.Fatal(answer, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the half-close: %v", err)
	}
}

// Case C020: a producer that names no topics gets its settings at once.
func TestProducerWithoutTopics(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	_, answer := d.connect(as(t, "p1"), producer())
	wantCode(t, answer.GetStatus(), v2.Code_OK)
	if answer.GetSettings().GetPublishing() == nil || len(d.heartbeats()) != 0 {
		t.Errorf("%v, %v", answer, d.heartbeats())
	}
}

func TestConsumerSettings(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	d.broker.groups["custom"] = Group{RetryMaxTimes: 3, Rests: []time.Duration{time.Second, 5 * time.Second}}
	d.broker.groups["growing"] = Group{
		RetryMaxTimes: 5,
		Orderly:       true,
		Initial:       time.Second,
		Max:           time.Minute,
		Multiplier:    3,
	}
	for _, tc := range []struct {
		group    string
		topic    string
		attempts int32
		fifo     bool
		policy   string
	}{
		{"custom", "normal", 4, false, "customized 1s 5s"},
		{"growing", "normal", 6, true, "exponential 1s 1m0s 3"},
		{"custom", "fifo", 4, true, "customized 1s 5s"}, // C111
		{"unknown", "normal", 17, false, "customized 1s 5s 10s 30s 1m0s 2m0s 3m0s 4m0s 5m0s 6m0s 7m0s 8m0s 9m0s 10m0s 20m0s 30m0s 1h0m0s 2h0m0s"},
	} {
		_, answer := d.connect(
			as(t, "c-"+tc.group+tc.topic),
			consumer(v2.ClientType_PUSH_CONSUMER, tc.group, tc.topic),
		)
		sub, backoff := answer.GetSettings().GetSubscription(), answer.GetSettings().GetBackoffPolicy()
		if sub.GetFifo() != tc.fifo || sub.GetReceiveBatchSize() != 32 ||
			sub.GetLongPollingTimeout().AsDuration() != 20*time.Second ||
			backoff.GetMaxAttempts() != tc.attempts ||
			sub.GetGroup().GetName() != tc.group {
			t.Errorf("%s: %v", tc.group, answer)
		}
		policy := "customized"
		for _, next := range backoff.GetCustomizedBackoff().GetNext() {
			policy += " " + next.AsDuration().String()
		}
		if e := backoff.GetExponentialBackoff(); e != nil {
			policy = "exponential " + e.GetInitial().AsDuration().String() + " " + e.GetMax().AsDuration().String() + " " +
				text(
					e.GetMultiplier(),
				)
		}
		if policy != tc.policy {
			t.Errorf("%s: %s", tc.group, policy)
		}
	}
	hb := d.heartbeats()[0]
	if c := hb.ConsumerDataSet[0]; c.GroupName != "custom" || c.ConsumeType != protocol.ConsumePassively ||
		c.SubscriptionDataSet[0].Topic != "normal" || c.SubscriptionDataSet[0].SubString != "*" {
		t.Errorf("heartbeat %+v", hb)
	}
}

// What a telemetry stream is closed for, and how.
func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	badFilter := consumer(v2.ClientType_PUSH_CONSUMER, "g", "normal")
	badFilter.GetSubscription().GetSubscriptions()[0].Expression.Expression = "||"
	for _, tc := range []struct {
		name     string
		settings *v2.Settings
		want     codes.Code
		says     string
	}{
		{"neither publishing nor subscription", &v2.Settings{}, codes.InvalidArgument, "there is no publishing or subscription data in settings"},
		{"topic", producer("a b"), codes.InvalidArgument, "process client telemetryCommand failed. The specified topic contains"},
		{"group", consumer(v2.ClientType_PUSH_CONSUMER, "g g", "normal"), codes.InvalidArgument, "process client telemetryCommand failed."},
		{"filter", badFilter, codes.InvalidArgument, "process client telemetryCommand failed. subString split error"},
		{"lite", consumer(v2.ClientType_LITE_PUSH_CONSUMER, "g", "normal"), codes.Unimplemented, "lite topics"},
		{"no type", consumer(v2.ClientType_CLIENT_TYPE_UNSPECIFIED, "g", "normal"), codes.InvalidArgument, "CLIENT_TYPE_UNSPECIFIED"},
	} {
		stream, err := d.client.Telemetry(as(t, "c-"+tc.name))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(
			&v2.TelemetryCommand{Command: &v2.TelemetryCommand_Settings{Settings: tc.settings}},
		); err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		if grpcstatus.Code(err) != tc.want || !strings.Contains(grpcstatus.Convert(err).Message(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestClientIDIsRequired(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := d.client.Telemetry(ctx)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil || answer.GetStatus().GetCode() != v2.Code_CLIENT_ID_REQUIRED {
		t.Fatal(answer, err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	for name, call := range map[string]func(context.Context) (*v2.Status, error){
		"route": func(ctx context.Context) (*v2.Status, error) {
			r, err := d.client.QueryRoute(ctx, &v2.QueryRouteRequest{Topic: resource("normal")})
			return r.GetStatus(), err
		},
		"heartbeat": func(ctx context.Context) (*v2.Status, error) {
			r, err := d.client.Heartbeat(ctx, &v2.HeartbeatRequest{})
			return r.GetStatus(), err
		},
		"send": func(ctx context.Context) (*v2.Status, error) {
			r, err := d.client.SendMessage(ctx, &v2.SendMessageRequest{Messages: []*v2.Message{plain("normal", nil)}})
			return r.GetStatus(), err
		},
		"assignment": func(ctx context.Context) (*v2.Status, error) {
			r, err := d.client.QueryAssignment(ctx, &v2.QueryAssignmentRequest{})
			return r.GetStatus(), err
		},
		"ack": func(ctx context.Context) (*v2.Status, error) {
			r, err := d.client.AckMessage(ctx, &v2.AckMessageRequest{})
			return r.GetStatus(), err
		},
		"change": func(ctx context.Context) (*v2.Status, error) {
			r, err := d.client.ChangeInvisibleDuration(ctx, &v2.ChangeInvisibleDurationRequest{})
			return r.GetStatus(), err
		},
		"end transaction": func(ctx context.Context) (*v2.Status, error) {
			r, err := d.client.EndTransaction(ctx, &v2.EndTransactionRequest{})
			return r.GetStatus(), err
		},
	} {
		for _, id := range []string{"", "  ", strings.Repeat("x", 2000)} {
			st, err := call(metadata.AppendToOutgoingContext(ctx, keyClientID, id))
			if err != nil || st.GetCode() != v2.Code_CLIENT_ID_REQUIRED {
				t.Errorf("%s as %.10q: %v %v", name, id, st, err)
			}
		}
	}
}

// Case C217: a client that is not known sends its settings again, and that is all.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	ctx := as(t, "c1")
	beat := func() *v2.Status {
		answer, err := d.client.Heartbeat(ctx, &v2.HeartbeatRequest{Group: resource("g")})
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetStatus()
	}
	wantCode(t, beat(), v2.Code_UNRECOGNIZED_CLIENT_TYPE)
	d.connect(ctx, consumer(v2.ClientType_SIMPLE_CONSUMER, "g", "normal"))
	wantCode(t, beat(), v2.Code_OK)
	hbs := d.heartbeats()
	if len(hbs) != 2 || hbs[1].ConsumerDataSet[0].ConsumeType != protocol.ConsumeActively ||
		hbs[0].ConsumerDataSet[0].SubscriptionDataSet[0].SubVersion != hbs[1].ConsumerDataSet[0].SubscriptionDataSet[0].SubVersion {
		t.Errorf("%+v", hbs)
	}
	d.broker.on(
		protocol.HeartBeat,
		func(c *remoting.Call) { c.Reply(remoting.Response{Code: protocol.SystemBusy, Remark: "busy"}) },
	)
	wantCode(t, beat(), v2.Code_TOO_MANY_REQUESTS)
}

func TestTermination(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	bye := func(id, group string) *v2.Status {
		req := &v2.NotifyClientTerminationRequest{}
		if group != "" {
			req.Group = resource(group)
		}
		answer, err := d.client.NotifyClientTermination(as(t, id), req)
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetStatus()
	}
	wantCode(t, bye("stranger", ""), v2.Code_UNRECOGNIZED_CLIENT_TYPE)
	d.connect(as(t, "p1"), producer("normal", "fifo"))
	d.connect(as(t, "c1"), consumer(v2.ClientType_PUSH_CONSUMER, "g", "normal"))
	wantCode(t, bye("p1", ""), v2.Code_OK)
	wantCode(t, bye("c1", "g"), v2.Code_OK)
	wantCode(t, bye("c1", "g"), v2.Code_UNRECOGNIZED_CLIENT_TYPE)
	var left []string
	for _, h := range d.broker.seen(protocol.UnregisterClient) {
		u, _ := h.(*protocol.UnregisterClientRequestHeader)
		left = append(left, u.ClientID+" "+u.ProducerGroup+u.ConsumerGroup)
	}
	slices.Sort(left)
	if text(left) != "[c1 g p1 fifo p1 normal]" {
		t.Errorf("left %v", left)
	}
	d.broker.mu.Lock()
	defer d.broker.mu.Unlock()
	if len(d.broker.ended) != 2 {
		t.Errorf("%d sessions ended, want 2", len(d.broker.ended))
	}
}

// A transaction producer that did not name its topic can be asked about its transactions all the same.
func TestTransactionProducerIsRegisteredBySending(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	d.broker.on(protocol.SendMessageV2, replySend)
	ctx := as(t, "p1")
	d.connect(ctx, producer())
	for range 2 {
		answer, err := d.client.SendMessage(
			ctx,
			&v2.SendMessageRequest{Messages: []*v2.Message{plain("transaction", func(m *v2.Message) {
				m.GetSystemProperties().MessageType = v2.MessageType_TRANSACTION
			})}},
		)
		if err != nil {
			t.Fatal(err)
		}
		wantCode(t, answer.GetStatus(), v2.Code_OK)
	}
	if hbs := d.heartbeats(); len(hbs) != 1 || text(hbs[0].ProducerDataSet) != "[{transaction}]" {
		t.Errorf("heartbeats %+v", hbs)
	}
}

// peerOf returns the session of a client as the broker knows it.
func (d *door) peerOf(id string) *session {
	s := d.server.api.sessions.find(id)
	if s == nil {
		d.t.Fatal("no session " + id)
	}
	return s
}

func TestCommandsGoDownTheStream(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	stream, _ := d.connect(as(t, "c1"), consumer(v2.ClientType_PUSH_CONSUMER, "g", "normal"))
	peer := d.peerOf("c1")
	rec := stored("transaction", 0, 3, "half", props("UNIQ_KEY", "01TX", "TRAN_MSG", "true", "PGROUP", "transaction"))
	if err := peer.OneWay(
		protocol.CheckTransactionState,
		&protocol.CheckTransactionStateRequestHeader{},
		rec,
	); err != nil {
		t.Fatal(err)
	}
	cmd, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	check := cmd.GetRecoverOrphanedTransactionCommand()
	if check.GetTransactionId() != "01TX" || string(check.GetMessage().GetBody()) != "half" ||
		check.GetMessage().GetSystemProperties().GetMessageType() != v2.MessageType_TRANSACTION {
		t.Errorf("%v", cmd)
	}
	for _, code := range []protocol.Code{protocol.NotifyConsumerIDsChanged, protocol.ResetConsumerClientOffset} {
		if err := peer.OneWay(code, nil, nil); err != nil {
			t.Errorf("%s: %v", code, err)
		}
	}
	if err := peer.OneWay(protocol.SendMessage, nil, nil); err == nil {
		t.Error("a send to a client succeeded")
	}
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	stream, _ := d.connect(as(t, "c1"), consumer(v2.ClientType_PUSH_CONSUMER, "g", "normal"))
	peer := d.peerOf("c1")
	trace := &protocol.GetConsumerRunningInfoRequestHeader{ConsumerGroup: "g", ClientID: "c1", JstackEnable: true}
	verify := &protocol.ConsumeMessageDirectlyResultRequestHeader{ConsumerGroup: "g", ClientID: "c1"}
	rec := stored("normal", 0, 3, "hello", "")
	for _, tc := range []struct {
		name string
		code protocol.Code
		h    protocol.Header
		say  v2.Code
		want string
	}{
		{"stack trace", protocol.GetConsumerRunningInfo, trace, v2.Code_OK, `"jstack":"main: running"`},
		{"stack trace refused", protocol.GetConsumerRunningInfo, trace, v2.Code_VERIFY_FIFO_MESSAGE_UNSUPPORTED, "code 16"},
		{"stack trace failed", protocol.GetConsumerRunningInfo, trace, v2.Code_INTERNAL_ERROR, "code 1"},
		{"consumed", protocol.ConsumeMessageDirectly, verify, v2.Code_OK, "CR_SUCCESS"},
		{"not consumed", protocol.ConsumeMessageDirectly, verify, v2.Code_FAILED_TO_CONSUME_MESSAGE, "CR_LATER"},
		{"corrupted", protocol.ConsumeMessageDirectly, verify, v2.Code_MESSAGE_CORRUPTED, "CR_RETURN_NULL"},
		{"odd", protocol.ConsumeMessageDirectly, verify, v2.Code_INTERNAL_ERROR, "CR_THROW_EXCEPTION"},
		{"fifo", protocol.ConsumeMessageDirectly, verify, v2.Code_VERIFY_FIFO_MESSAGE_UNSUPPORTED, "code 16"},
	} {
		go func() {
			cmd, err := stream.Recv()
			if err != nil {
				return
			}
			answer := &v2.TelemetryCommand{
				Status: status(tc.say, ""),
				Command: &v2.TelemetryCommand_VerifyMessageResult{
					VerifyMessageResult: &v2.VerifyMessageResult{Nonce: cmd.GetVerifyMessageCommand().GetNonce()},
				},
			}
			if p := cmd.GetPrintThreadStackTraceCommand(); p != nil {
				answer.Command = &v2.TelemetryCommand_ThreadStackTrace{ThreadStackTrace: &v2.ThreadStackTrace{
					Nonce: p.GetNonce(), ThreadStackTrace: proto.String("main: running"),
				}}
			}
			stream.Send(answer)
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		answer, err := ask(ctx, peer, tc.code, tc.h, rec)
		cancel()
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		said := string(answer.Body)
		if answer.Code != 0 {
			said = "code " + text(answer.Code)
		}
		if !strings.Contains(said, tc.want) {
			t.Errorf("%s: %s", tc.name, said)
		}
	}
	// What can be said without the client is.
	answer, err := ask(
		t.Context(),
		peer,
		protocol.GetConsumerRunningInfo,
		&protocol.GetConsumerRunningInfoRequestHeader{},
		nil,
	)
	if err != nil || !strings.Contains(string(answer.Body), `"topic":"normal"`) {
		t.Errorf("%s %v", answer.Body, err)
	}
	done := make(chan error, 1)
	peer.Request(
		protocol.GetConsumerRunningInfo,
		trace,
		nil,
		time.Millisecond,
		func(_ *protocol.Command, err error) { done <- err },
	)
	if err := <-done; !errors.Is(err, remoting.ErrTimeout) {
		t.Errorf("no answer: %v", err)
	}
	peer.Request(
		protocol.GetConsumerRunningInfo,
		trace,
		nil,
		time.Minute,
		func(_ *protocol.Command, err error) { done <- err },
	)
	d.server.api.sessions.end(peer)
	if err := <-done; !errors.Is(err, remoting.ErrConnClosed) {
		t.Errorf("the client left: %v", err)
	}
}

// A client that does not read its stream is owed so much and no more, and its neighbours do not notice.
func TestSlowTelemetryReader(t *testing.T) {
	t.Parallel()
	d := newDoor(t, func(c *Config) { c.Limits.MaxOwedBytes = 1 << 20 })
	_, _ = d.connect(as(t, "slow"), producer("transaction"))
	peer := d.peerOf("slow")
	rec := stored("transaction", 0, 0, strings.Repeat("x", 64<<10), "")
	refused := 0
	for range 200 {
		if err := peer.OneWay(protocol.CheckTransactionState, nil, rec); errors.Is(err, errOwed) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Error("200 commands of 64 KiB were taken")
	}
	_, answer := d.connect(as(t, "quick"), producer("normal"))
	wantCode(t, answer.GetStatus(), v2.Code_OK)
}

func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	d := newDoor(t, func(c *Config) { c.Limits.MaxSessions = 1 })
	d.connect(as(t, "one"), producer())
	stream, err := d.client.Telemetry(as(t, "two"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(
		&v2.TelemetryCommand{Command: &v2.TelemetryCommand_Settings{Settings: producer()}},
	); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); grpcstatus.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), "limit") {
		t.Error(err)
	}
}

// A client without stream and rpcs is forgotten; one with a stream is not.
func TestSilentSessionsEnd(t *testing.T) {
	t.Parallel()
	d := newDoor(t, func(c *Config) {
		c.Limits.RenewPeriod, c.Limits.SessionIdle = time.Millisecond, 50*time.Millisecond
	})
	ctx, cancel := context.WithCancel(as(t, "gone"))
	d.connect(ctx, producer())
	d.connect(as(t, "here"), producer())
	cancel()
	eventually(t, "the silent client is forgotten", func() bool { return d.server.api.sessions.find("gone") == nil })
	d.peerOf("here").Close()
	if d.server.api.sessions.find("here") == nil {
		t.Error("a client with a stream was forgotten")
	}
}

func TestHealthAndReflection(t *testing.T) {
	t.Parallel()
	ready := make(chan error, 1)
	ready <- nil
	d := newDoor(t, func(c *Config) {
		c.Ready = func() error {
			err := <-ready
			ready <- err
			return err
		}
	})
	health := healthpb.NewHealthClient(d.conn)
	check := func(service string) (healthpb.HealthCheckResponse_ServingStatus, error) {
		answer, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		return answer.GetStatus(), err
	}
	if st, err := check(
		"apache.rocketmq.v2.MessagingService",
	); err != nil ||
		st != healthpb.HealthCheckResponse_SERVING {
		t.Error(st, err)
	}
	if _, err := check("nobody"); grpcstatus.Code(err) != codes.NotFound {
		t.Error(err)
	}
	<-ready
	ready <- errors.New("disk full")
	for service, want := range map[string]healthpb.HealthCheckResponse_ServingStatus{ // C208: no restarts for a full disk
		"":          healthpb.HealthCheckResponse_NOT_SERVING,
		"readiness": healthpb.HealthCheckResponse_NOT_SERVING,
		"liveness":  healthpb.HealthCheckResponse_SERVING,
	} {
		if st, err := check(service); err != nil || st != want {
			t.Errorf("%q with a full disk: %v, %v", service, st, err)
		}
	}
	refl, err := reflectionpb.NewServerReflectionClient(d.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = refl.Send(
		&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}},
	)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := refl.Recv()
	if err != nil || !strings.Contains(answer.String(), "apache.rocketmq.v2.MessagingService") {
		t.Error(answer, err)
	}
}

func TestLiteTopicsAreNotImplemented(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	_, err := d.client.SyncLiteSubscription(as(t, "c1"), &v2.SyncLiteSubscriptionRequest{})
	if grpcstatus.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

// ask asks a client and waits for the answer.
func ask(
	ctx context.Context, peer remoting.Caller, code protocol.Code, h protocol.Header, body []byte,
) (*protocol.Command, error) {
	type outcome struct {
		cmd *protocol.Command
		err error
	}
	answered := make(chan outcome, 1)
	peer.Request(code, h, body, time.Minute, func(cmd *protocol.Command, err error) { answered <- outcome{cmd, err} })
	select {
	case o := <-answered:
		return o.cmd, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
