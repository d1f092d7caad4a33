// SPDX-License-Identifier: Apache-2.0

//go:build race

package service

// raceOn says that processor time cannot be measured: everything takes several times its own.
const raceOn = true
