// SPDX-License-Identifier: Apache-2.0

// Package deploy tests what deploy/ ships: the Helm chart by its renders, decoded into the types of Kubernetes, and the
// Compose files and Dockerfiles. A module of its own, because Helm and Kubernetes bring much that nobody else needs.
package deploy
