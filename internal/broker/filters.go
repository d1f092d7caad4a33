// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"

	"github.com/roquetmq/roquet/internal/broker/filter"
)

// parseFilter parses the subscription that a request carries. Errors: SubscriptionIllegal,
// *filter.UnsupportedError.
func parseFilter(filters *filter.Cache, text, exprType string) (*filter.Subscription, error) {
	sub, err := filters.Parse(text, exprType)
	return sub, refuseFilter(err, SubscriptionIllegal, "parse the consumer's subscription failed:")
}

// parseTold parses a subscription that a heartbeat told. Errors: parseFilter's, and FilterDataMissing for an
// SQL92 expression.
func parseTold(filters *filter.Cache, told *SubscriptionData) (*filter.Subscription, error) {
	if !filter.IsSQL(told.ExpressionType) {
		return parseFilter(filters, told.SubString, told.ExpressionType)
	}
	sub, err := filters.Parse(told.SubString, told.ExpressionType)
	return sub, refuseFilter(err, FilterDataMissing,
		"The broker's consumer filter data is not exist!Your expression may be wrong!")
}

func refuseFilter(err error, reason Reason, remark string) error {
	if err == nil || errors.As(err, new(*filter.UnsupportedError)) {
		return err
	}
	return refuse(reason, "%s %w", remark, err)
}
