// SPDX-License-Identifier: Apache-2.0

// Package protocol is RocketMQ's remoting wire format: request and response codes, the RemotingCommand
// frame with its two header forms (JSON and ROCKETMQ binary), the typed headers of every code, and the JSON
// bodies. It knows no broker, no socket and no clock; every function is pure and safe for concurrent use on
// different values.
//
// A frame, big-endian:
//
//	off  size       field
//	0    4          total = number of bytes after this field = 4 + headerLen + bodyLen
//	4    1          serialize type: 0 JSON, 1 ROCKETMQ
//	5    3          headerLen
//	8    headerLen  header
//	...  rest       body
//
// Decoding takes no copy: the strings and slices of a Command alias the frame it was decoded from, and JSON
// escapes are resolved inside the frame. Whoever keeps a string longer than the frame's buffer clones it.
//
// headers.txt defines the headers, bodies.txt the JSON bodies and codes.txt the codes; tools/protocolgen makes
// headers_gen.go, bodies_gen.go and codes_gen.go of them.
package protocol

//go:generate go run -C ../../tools ./protocolgen
