// SPDX-License-Identifier: Apache-2.0

package auth

import "fmt"

// CredentialError says why a request comes from nobody who is known.
type CredentialError struct{ Reason string }

// Error is the reason.
func (e *CredentialError) Error() string { return e.Reason }

func unknown(format string, args ...any) error { return &CredentialError{fmt.Sprintf(format, args...)} }

// RightError says that a user may not do what it asks for.
type RightError struct{ Reason string }

// Error is the reason.
func (e *RightError) Error() string { return e.Reason }

// ChangeError says why users or rules are not changed as asked.
type ChangeError struct{ Reason string }

// Error is the reason.
func (e *ChangeError) Error() string { return e.Reason }

func refuse(format string, args ...any) error { return &ChangeError{fmt.Sprintf(format, args...)} }
