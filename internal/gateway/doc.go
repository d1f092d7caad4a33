// SPDX-License-Identifier: Apache-2.0

// Package gateway is the door for HTTP: REST with JSON (roquet.v1, by grpc-gateway), raw bodies, NDJSON and
// server-sent events for curl and browsers, health, and the OpenAPI page. It knows no broker: a request becomes
// one or more calls with a typed header, dispatched through the one registry.
//
//	http.Server ─→ door.ServeHTTP ─→ the few routes below that are not plain JSON
//	                              └→ grpc-gateway ─→ topics, messages, groups, cluster, users
//
// The last five are the clients that the generated code calls; they run in this process and make the calls
// themselves, so nothing is dialled and nothing is encoded twice. What a message may be, and what an error is
// called, is one set of rules with the gRPC door, given as Rules.
//
// A failure is an Error, in the form of google.rpc.Status, on its own, for one item of several, or at the end of a
// stream; its HTTP status mirrors its code (errors.go).
package gateway
