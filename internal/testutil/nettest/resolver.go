package nettest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
)

// Resolver is a resolver whose names are those of a function, which is called once for each question, from any
// goroutine. All else is done as for the system's name server, whose place it takes by net.DefaultResolver.
//
//	net.DefaultResolver = nettest.Resolver(func(name string) (a netip.Addr, ok bool) { return local, name == "node0.test" })
func Resolver(address func(name string) (a netip.Addr, ok bool)) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			for answerName(server, address) == nil {
			}
		}()
		return client, nil
	}}
}

// Of the messages of DNS.
const (
	dnsHeader   = 12
	dnsTypeA    = 1
	dnsResponse = 0x8180 // an answer to a recursive question
	dnsNoName   = 3
)

// answerName answers a question about the address of a name.
func answerName(c net.Conn, address func(string) (netip.Addr, bool)) error {
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return err
	}
	q := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(c, q); err != nil {
		return err
	}
	var labels []string
	at := dnsHeader
	for at < len(q) && q[at] != 0 && at+1+int(q[at]) < len(q) {
		labels = append(labels, string(q[at+1:at+1+int(q[at])]))
		at += 1 + int(q[at])
	}
	end := at + 5 // the root, type and class
	if end > len(q) {
		return io.ErrUnexpectedEOF
	}
	var found netip.Addr
	status, answers := 0, 0
	if binary.BigEndian.Uint16(q[at+1:]) == dnsTypeA {
		a, ok := address(strings.Join(labels, "."))
		if found = a; ok {
			answers = 1
		} else {
			status = dnsNoName
		}
	}
	r := append([]byte{}, q[:2]...)
	for _, v := range []int{dnsResponse | status, 1, answers, 0, 0} {
		r = binary.BigEndian.AppendUint16(r, uint16(v))
	}
	r = append(r, q[dnsHeader:end]...)
	if answers > 0 {
		ip := found.As4()
		// A reference to the question's name, type A, class IN, valid for no time, and four bytes.
		r = append(append(r, 0xc0, dnsHeader, 0, dnsTypeA, 0, 1, 0, 0, 0, 0, 0, 4), ip[:]...)
	}
	_, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(r))), r...))
	return err
}
