// SPDX-License-Identifier: Apache-2.0

// Package auth holds users and what they may do: the model of RocketMQ 5 (users with a secret, rules for topics,
// groups and the cluster), independent of any wire format.
//
// A Table is where users and rules come from: state records in the log, a YAML file that is read again when it
// changes, and the settings. What they come to is a Book, which is never changed, only replaced: deciding takes no
// lock. Source: the module auth of the original.
package auth
