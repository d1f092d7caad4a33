// SPDX-License-Identifier: Apache-2.0

// Package nameserver keeps which broker has which topics at which address, and small settings by namespace
// and key.
//
// Routes are memory alone: every broker registers with every name server, again and again, and is forgotten
// when it falls silent. A broker of the same process registers by a direct call and never expires. Settings
// ([KV]) are a small file that is replaced as a whole. The package knows no wire format: it takes and gives
// plain structs.
package nameserver
