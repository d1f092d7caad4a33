// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"

	"github.com/roquetmq/roquet/internal/broker/filter"
)

// SubscriptionParseError says that the subscription a request carries cannot be understood.
type SubscriptionParseError struct{ Cause error }

// Error returns the original's remark and the cause.
func (e *SubscriptionParseError) Error() string {
	return fmt.Sprintf("parse the consumer's subscription failed: %v", e.Cause)
}

// Unwrap returns the cause.
func (e *SubscriptionParseError) Unwrap() error { return e.Cause }

// FilterDataError says that the SQL92 expression which a group's consumers told cannot be understood.
type FilterDataError struct{ Cause error }

// Error returns the original's remark and the cause.
func (e *FilterDataError) Error() string {
	return fmt.Sprintf("The broker's consumer filter data is not exist!Your expression may be wrong! %v", e.Cause)
}

// Unwrap returns the cause.
func (e *FilterDataError) Unwrap() error { return e.Cause }

// parseFilter parses the subscription that a request carries. Errors: *SubscriptionParseError,
// *filter.UnsupportedError.
func parseFilter(filters *filter.Cache, text, exprType string) (*filter.Subscription, error) {
	sub, err := filters.Parse(text, exprType)
	if err == nil {
		return sub, nil
	}
	var unsupported *filter.UnsupportedError
	if errors.As(err, &unsupported) {
		return nil, err
	}
	return nil, &SubscriptionParseError{Cause: err}
}

// parseTold parses a subscription that a heartbeat told. Errors: *SubscriptionParseError, *FilterDataError,
// *filter.UnsupportedError.
func parseTold(filters *filter.Cache, told *SubscriptionData) (*filter.Subscription, error) {
	sub, err := parseFilter(filters, told.SubString, told.ExpressionType)
	if err == nil || !filter.IsSQL(told.ExpressionType) {
		return sub, err
	}
	var wrong *SubscriptionParseError
	if errors.As(err, &wrong) {
		return nil, &FilterDataError{Cause: wrong.Cause}
	}
	return nil, err
}
