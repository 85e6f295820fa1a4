package abi

import (
	"fmt"
	"strings"
)

// Status is what a call has returned: bits of errors, or 0. It's an error of Go if it isn't 0: Err.
type Status uint32

// The bits.
const (
	DMAMismatch Status = 1 << iota
	DMAInternal
	DMADecode // no memory there
	DMASlave
	DMANotOkay
	DMANotEndOfPacket
	DMANotExpectedBTT // another number of bytes
	DMATimeout
	ConfigSwitch
	DequeueBufferTimeout
	DequeueBufferStatus // the message doesn't fit an RX buffer
	ReceiveTimeout
	DequeueBufferTagMismatch // the next message of the rank has another tag
	DequeueBufferIndex
	CollectiveNotImplemented // no such scenario, or it makes no sense
	ReceiveSpareBufferID     // a spare buffer isn't there, or too small
	EagerThresholdInvalid
	RendezvousThresholdInvalid
	DMASize
	Arith // no such arithmetic configuration, or function
	PackTimeout
	PackSequenceNumber
	Compression // no such conversion
	KernelTimeout
	KernelCount
	SegmenterExpectedBTT
	DMATagMismatch

	NotReady Status = 1 << 31 // a reset dropped the call
)

var statusNames = [32]string{
	0: "DMA_MISMATCH_ERROR", 1: "DMA_INTERNAL_ERROR", 2: "DMA_DECODE_ERROR", 3: "DMA_SLAVE_ERROR",
	4: "DMA_NOT_OKAY_ERROR", 5: "DMA_NOT_END_OF_PACKET_ERROR", 6: "DMA_NOT_EXPECTED_BTT_ERROR", 7: "DMA_TIMEOUT_ERROR",
	8: "CONFIG_SWITCH_ERROR", 9: "DEQUEUE_BUFFER_TIMEOUT_ERROR", 10: "DEQUEUE_BUFFER_SPARE_BUFFER_STATUS_ERROR",
	11: "RECEIVE_TIMEOUT_ERROR", 12: "DEQUEUE_BUFFER_SPARE_BUFFER_DMATAG_MISMATCH",
	13: "DEQUEUE_BUFFER_SPARE_BUFFER_INDEX_ERROR", 14: "COLLECTIVE_NOT_IMPLEMENTED",
	15: "RECEIVE_OFFCHIP_SPARE_BUFF_ID_NOT_VALID", 16: "EAGER_THRESHOLD_INVALID", 17: "RENDEZVOUS_THRESHOLD_INVALID",
	18: "DMA_SIZE_ERROR", 19: "ARITH_ERROR", 20: "PACK_TIMEOUT_STS_ERROR", 21: "PACK_SEQ_NUMBER_ERROR",
	22: "COMPRESSION_ERROR", 23: "KRNL_TIMEOUT_STS_ERROR", 24: "KRNL_STS_COUNT_ERROR",
	25: "SEGMENTER_EXPECTED_BTT_ERROR", 26: "DMA_TAG_MISMATCH_ERROR", 31: "NOT_READY_ERROR",
}

// String names the bits: "COLLECTIVE_OP_SUCCESS" if there is none.
func (s Status) String() string {
	if s == 0 {
		return "COLLECTIVE_OP_SUCCESS"
	}
	var names []string
	for i, name := range statusNames {
		switch {
		case s&(1<<i) == 0:
		case name == "":
			names = append(names, fmt.Sprintf("bit %d", i))
		default:
			names = append(names, name)
		}
	}
	return strings.Join(names, " | ")
}

// Error implements error.
func (s Status) Error() string {
	return fmt.Sprintf("the engine returned %#x: %s", uint32(s), s.String())
}

// Err returns the status as an error; nil if it's success.
func (s Status) Err() error {
	if s == 0 {
		return nil
	}
	return s
}
