package abi

import (
	"fmt"
	"syscall"
)

// The version of the interface that a program asks ucp_init_version for: ucp_version.h.
const (
	Major = 1
	Minor = 13
)

// Bits of Params.FieldMask, enum ucp_params_field, and of Params.Features, enum ucp_feature.
const (
	ParamFeatures        = 1 << 0
	ParamTagSenderMask   = 1 << 4
	ParamEstimatedNumEps = 1 << 6

	FeatureTag    = 1 << 0
	FeatureWakeup = 1 << 4
)

// Params is ucp_params_t.
type Params struct {
	FieldMask       uint64
	Features        uint64
	RequestSize     uintptr
	RequestInit     uintptr
	RequestCleanup  uintptr
	TagSenderMask   uint64
	MTWorkersShared int32
	EstimatedNumEps uintptr
	EstimatedNumPPN uintptr
	Name            *byte
}

// Bits of WorkerParams.FieldMask, enum ucp_worker_params_field; of Flags, ucp_worker_flags_t; and a value of
// ThreadMode, ucs_thread_mode_t.
const (
	WorkerParamThreadMode = 1 << 0
	WorkerParamFlags      = 1 << 5

	WorkerFlagIgnoreRequestLeak = 1 << 0

	ThreadModeSerialized = 1 // any thread, one at a time
)

// WorkerParams is ucp_worker_params_t.
type WorkerParams struct {
	FieldMask   uint64
	ThreadMode  int32
	CPUMask     [16]uint64 // ucs_cpu_set_t
	Events      uint32
	UserData    uintptr
	EventFD     int32
	Flags       uint64
	Name        *byte
	AMAlignment uintptr
	ClientID    uint64
}

// Bits of EndpointParams.FieldMask, enum ucp_ep_params_field, and values of ErrMode, ucp_err_handling_mode_t.
const (
	EndpointParamRemoteAddress   = 1 << 0
	EndpointParamErrHandlingMode = 1 << 1
	EndpointParamErrHandler      = 1 << 2

	ErrHandlingNone = 0
	ErrHandlingPeer = 1
)

// EndpointParams is ucp_ep_params_t.
type EndpointParams struct {
	FieldMask        uint64
	Address          *byte
	ErrMode          int32
	ErrHandler       uintptr // takes Arg, the endpoint and a status
	Arg              uintptr
	UserData         uintptr
	Flags            uint32
	SockAddr         SockAddr
	ConnRequest      uintptr
	Name             *byte
	LocalSockAddress SockAddr
}

// SockAddr is ucs_sock_addr_t.
type SockAddr struct {
	Addr   uintptr
	Length uint32
}

// Bits of RequestParam.Mask, ucp_op_attr_t, and of its Flags when an endpoint is closed, ucp_ep_close_flags_t.
const (
	OpFlags = 1 << 4
	OpNoImm = 1 << 16 // UCP_OP_ATTR_FLAG_NO_IMM_CMPL: there is a request even if it's complete at once

	CloseForce = 1 << 0
)

// RequestParam is ucp_request_param_t.
type RequestParam struct {
	Mask        uint32
	Flags       uint32
	Request     uintptr
	Callback    uintptr
	Datatype    uint64
	UserData    uintptr
	ReplyBuffer uintptr
	MemoryType  int32
	RecvInfo    uintptr
	MemHandle   uintptr
}

// TagRecvInfo is ucp_tag_recv_info_t.
type TagRecvInfo struct {
	SenderTag uint64
	Length    uintptr
}

// Status is ucs_status_t: an enum of one byte. A function that returns one leaves the rest of the register undefined.
type Status int8

// StatusOf is the status in a register.
func StatusOf(register uintptr) Status { return Status(int8(register)) }

// The statuses that mean something to a caller: ucs/type/status.h.
const (
	OK              Status = 0
	InProgress      Status = 1
	NoResource      Status = -2
	NoMemory        Status = -4
	Unreachable     Status = -6
	NoDevice        Status = -14
	Busy            Status = -15
	Canceled        Status = -16
	Unsupported     Status = -22
	ConnectionReset Status = -25
	EndpointTimeout Status = -80
	lastStatus      Status = -100
)

// names are the identifiers of status.h.
var names = map[Status]string{
	OK: "UCS_OK", InProgress: "UCS_INPROGRESS", -1: "UCS_ERR_NO_MESSAGE", NoResource: "UCS_ERR_NO_RESOURCE",
	-3: "UCS_ERR_IO_ERROR", NoMemory: "UCS_ERR_NO_MEMORY", -5: "UCS_ERR_INVALID_PARAM", Unreachable: "UCS_ERR_UNREACHABLE",
	-7: "UCS_ERR_INVALID_ADDR", -8: "UCS_ERR_NOT_IMPLEMENTED", -9: "UCS_ERR_MESSAGE_TRUNCATED",
	-10: "UCS_ERR_NO_PROGRESS", -11: "UCS_ERR_BUFFER_TOO_SMALL", -12: "UCS_ERR_NO_ELEM",
	-13: "UCS_ERR_SOME_CONNECTS_FAILED", NoDevice: "UCS_ERR_NO_DEVICE", Busy: "UCS_ERR_BUSY", Canceled: "UCS_ERR_CANCELED",
	-17: "UCS_ERR_SHMEM_SEGMENT", -18: "UCS_ERR_ALREADY_EXISTS", -19: "UCS_ERR_OUT_OF_RANGE", -20: "UCS_ERR_TIMED_OUT",
	-21: "UCS_ERR_EXCEEDS_LIMIT", Unsupported: "UCS_ERR_UNSUPPORTED", -23: "UCS_ERR_REJECTED",
	-24: "UCS_ERR_NOT_CONNECTED", ConnectionReset: "UCS_ERR_CONNECTION_RESET",
	EndpointTimeout: "UCS_ERR_ENDPOINT_TIMEOUT",
}

// meanings say what statuses mean to a user, where the name alone doesn't.
var meanings = map[Status]string{
	NoResource:      "UCX got no shared memory, descriptors or other resource of the host",
	NoMemory:        "UCX got no memory",
	Unreachable:     "no transport that both ranks have leads to the peer",
	-12:             "UCX has no such setting",
	NoDevice:        "no transport that is permitted has a device here",
	-21:             "a limit of UCX or of the host is exceeded",
	Unsupported:     "the transports that are permitted can't do this",
	ConnectionReset: "the connection was reset",
	EndpointTimeout: "the peer doesn't answer",
}

// Error is the status's name in UCX, behind what it means.
func (s Status) Error() string {
	n, ok := names[s]
	if !ok {
		n = fmt.Sprintf("UCX status %d", int8(s))
	}
	if m, ok := meanings[s]; ok {
		return m + ": " + n
	}
	return n
}

// Is makes a lack of a resource ENOMEM: it's this process's own fault, and not that of a peer.
func (s Status) Is(target error) bool {
	return target == syscall.ENOMEM && (s == NoResource || s == NoMemory)
}

// Own reports whether a failure to make an endpoint is this process's own: it has no transport to the peer, or no
// resources. Others can be the peer's, which may have gone.
func (s Status) Own() bool {
	return s == NoResource || s == NoMemory || s == Unreachable || s == NoDevice || s == Unsupported
}

// Of splits what UCX returns for an operation (ucs_status_ptr_t): a request, or no request and a status.
func Of(result uintptr) (request uintptr, s Status) {
	if int64(result) >= int64(lastStatus) && int64(result) <= 0 {
		return 0, Status(int64(result))
	}
	return result, InProgress
}
