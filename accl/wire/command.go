package wire

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/chorus-comms/chorus/accl/abi"
)

// The types of command.
const (
	readRegister = iota
	writeRegister
	readMemory
	writeMemory
	allocMemory
	startCall
	waitCall
)

// The statuses of a reply. Those of calls are negative if there's no such controller.
const (
	statusOK      = 0
	statusBad     = 1
	statusPending = 1
	statusNoCtrl  = -1
)

// command is a request of a driver.
type command struct {
	Type  uint32
	Addr  uint64
	Len   uint64
	Host  bool
	Value uint32 // written to a register
	Data  []byte // written to memory
	Ctrl  uint32
	Call  abi.Call
}

// text is a command as it's written, with the keys in order.
type text struct {
	Addr        *uint64         `json:"addr,omitempty"`
	Addr0       *uint64         `json:"addr_0,omitempty"`
	Addr1       *uint64         `json:"addr_1,omitempty"`
	Addr2       *uint64         `json:"addr_2,omitempty"`
	ArithConfig *uint32         `json:"arithcfg,omitempty"`
	Comm        *uint32         `json:"comm,omitempty"`
	Compression *uint32         `json:"compression_flags,omitempty"`
	Count       *uint32         `json:"count,omitempty"`
	Ctrl        *uint32         `json:"ctrl_id,omitempty"`
	Function    *uint32         `json:"function,omitempty"`
	Host        *bool           `json:"host,omitempty"`
	Len         *uint64         `json:"len,omitempty"`
	Root        *uint32         `json:"root_src_dst,omitempty"`
	Scenario    *uint32         `json:"scenario,omitempty"`
	Stream      *uint32         `json:"stream_flags,omitempty"`
	Tag         *uint32         `json:"tag,omitempty"`
	Type        *uint32         `json:"type,omitempty"`
	Data        json.RawMessage `json:"wdata,omitempty"`
}

func (c *command) encode() []byte {
	t := text{Type: &c.Type}
	switch c.Type {
	case readRegister:
		t.Addr = &c.Addr
	case writeRegister:
		t.Addr, t.Data = &c.Addr, strconv.AppendUint(nil, uint64(c.Value), 10)
	case readMemory, allocMemory:
		t.Addr, t.Len, t.Host = &c.Addr, &c.Len, &c.Host
	case writeMemory:
		t.Addr, t.Host, t.Data = &c.Addr, &c.Host, appendNumbers(nil, c.Data)
	case startCall:
		w := c.Call.Words()
		t.Ctrl, t.Scenario, t.Count, t.Comm, t.Root, t.Function, t.Tag = &c.Ctrl, &w[0], &w[1], &w[2], &w[3], &w[4], &w[5]
		t.ArithConfig, t.Compression, t.Stream = &w[6], &w[7], &w[8]
		t.Addr0, t.Addr1, t.Addr2 = &c.Call.Addr[0], &c.Call.Addr[1], &c.Call.Addr[2]
	case waitCall:
		t.Ctrl = &c.Ctrl
	}
	b, _ := json.Marshal(&t) // has nothing that can't be written
	return b
}

func parseCommand(b []byte) (c command, err error) {
	var t text
	if err := json.Unmarshal(b, &t); err != nil {
		return c, err
	}
	if t.Type == nil {
		return c, fmt.Errorf("a command without a type")
	}
	value := func(p *uint32) uint32 {
		if p == nil {
			return 0
		}
		return *p
	}
	wide := func(p *uint64) uint64 {
		if p == nil {
			return 0
		}
		return *p
	}
	c = command{Type: *t.Type, Addr: wide(t.Addr), Len: wide(t.Len), Ctrl: value(t.Ctrl)}
	c.Host = t.Host != nil && *t.Host
	switch c.Type {
	case writeRegister:
		err = json.Unmarshal(t.Data, &c.Value)
	case writeMemory:
		err = json.Unmarshal(t.Data, (*numbers)(&c.Data))
	case startCall:
		c.Call = abi.ParseCall([abi.CallWords]uint32{value(t.Scenario), value(t.Count), value(t.Comm), value(t.Root),
			value(t.Function), value(t.Tag), value(t.ArithConfig), value(t.Compression), value(t.Stream)})
		c.Call.Addr = [3]uint64{wide(t.Addr0), wide(t.Addr1), wide(t.Addr2)}
	}
	return c, err
}

// reply is the engine's answer.
type reply struct {
	Status int
	Value  *uint32 // of a register
	Data   []byte  // of memory
}

type replyText struct {
	Data   json.RawMessage `json:"rdata,omitempty"`
	Status int             `json:"status"`
}

func (r *reply) encode() []byte {
	t := replyText{Status: r.Status}
	switch {
	case r.Value != nil:
		t.Data = strconv.AppendUint(nil, uint64(*r.Value), 10)
	case r.Data != nil:
		t.Data = appendNumbers(nil, r.Data)
	}
	b, _ := json.Marshal(&t)
	return b
}

func parseReply(b []byte) (r reply, err error) {
	var t replyText
	if err := json.Unmarshal(b, &t); err != nil {
		return r, err
	}
	r.Status = t.Status
	switch {
	case len(t.Data) == 0 || string(t.Data) == "null":
	case t.Data[0] == '[':
		r.Data = []byte{}
		err = json.Unmarshal(t.Data, (*numbers)(&r.Data))
	default:
		r.Value = new(uint32)
		err = json.Unmarshal(t.Data, r.Value)
	}
	return r, err
}
