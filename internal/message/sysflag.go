// SPDX-License-Identifier: Apache-2.0

package message

// Bits of Message.SysFlag. Source: MessageSysFlag and CompressionType of Apache RocketMQ.
const (
	SysFlagCompressed  int32 = 0x1
	SysFlagMultiTags   int32 = 0x2
	SysFlagBornHostV6  int32 = 0x10
	SysFlagStoreHostV6 int32 = 0x20
	SysFlagNeedUnwrap  int32 = 0x40
	SysFlagInnerBatch  int32 = 0x80

	// TransactionMask selects the transaction type out of a sysFlag.
	TransactionMask     int32 = 0xC
	TransactionNone     int32 = 0x0
	TransactionPrepared int32 = 0x4
	TransactionCommit   int32 = 0x8
	TransactionRollback int32 = 0xC

	// CompressionMask selects the compression of the body out of a sysFlag; 0 means zlib in old clients.
	CompressionMask int32 = 0x700
	CompressionLZ4  int32 = 0x100
	CompressionZSTD int32 = 0x200
	CompressionZLIB int32 = 0x300
)

// IsQueued reports whether a message with this sysFlag gets an entry in its queue: prepared and rolled back
// transactions do not.
func IsQueued(sysFlag int32) bool {
	t := sysFlag & TransactionMask
	return t == TransactionNone || t == TransactionCommit
}
