// SPDX-License-Identifier: Apache-2.0

// Package grpcapi is the door of the 5.x clients: apache.rocketmq.v2.MessagingService on grpc-go's own
// transport, fed with connections by the listeners of package remoting. It knows no broker. Each rpc is
// checked as the original proxy checks it, becomes one or more calls with a typed header, and is dispatched
// through the one registry, so that lanes, hooks and errors are those of every door; the answer is turned
// back, its response code into a Code by one table (codes.txt of package protocol).
//
// What belongs to a client and not to one of its rpcs is its session: the settings it sent, its telemetry
// stream, the receipt handles that are renewed for it. A session is the Peer of the client's calls and a
// Caller for what the broker asks of it.
//
// A failure is a Status inside an answer with the gRPC status OK, as clients expect. gRPC's own status
// appears where the original has it too (telemetry, unimplemented rpcs), and when the client itself gave the
// rpc up.
//
// Source: proxy/src/main/java/org/apache/rocketmq/proxy/grpc/v2 of apache/rocketmq, release 5.5.0.
package grpcapi
