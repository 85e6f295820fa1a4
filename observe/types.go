package observe

import "github.com/chorus-comms/chorus/observe/record"

// What ranks write, as package record defines it.
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
