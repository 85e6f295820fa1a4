package observe

import "github.com/chorus-comms/chorus/observe/record"

// These are the parts of dumps and answers; package record writes them.
type (
	Dump      = record.Dump
	Header    = record.Header
	CommState = record.CommState
	Failure   = record.Failure
	Group     = record.Group
	Frame     = record.Frame
	Entry     = record.Entry
	Detail    = record.Detail
	Live      = record.Live
	LiveComm  = record.LiveComm
	Latency   = record.Latency
	Party     = record.Party
)
