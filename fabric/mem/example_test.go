package mem_test

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/mem"
)

// Two ranks of one process; the message goes from one's buffer into the other's.
func ExampleNewWorld() {
	ranks := mem.NewWorld(2)
	key := fabric.Key{Class: fabric.PointToPoint, Tag: 42}
	out, in := []byte("hello"), make([]byte, 8)

	// A wait for messages takes a waiter, which holds its deadline and its abort.
	abort := fabric.NewAbort()
	sender, receiver := fabric.NewWaiter(abort), fabric.NewWaiter(abort)
	sender.Begin(nil, time.Minute)
	receiver.Begin(nil, time.Minute)

	send := &fabric.Msg{Peer: 1, Key: key, Buf: unsafe.Pointer(&out[0]), Len: len(out)}
	send.Reset(sender)
	ranks[0].Send(send)
	recv := &fabric.Msg{Peer: fabric.AnySource, Key: key, Buf: unsafe.Pointer(&in[0]), Len: len(in)}
	recv.Reset(receiver)
	ranks[1].Recv(recv)
	if err := ranks[1].Wait(recv, receiver); err != nil {
		fmt.Println(err)
	}
	if err := ranks[0].Wait(send, sender); err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%s from rank %d\n", in[:recv.N], recv.From)
	for _, f := range ranks {
		f.Close(nil)
	}
	// Output: hello from rank 0
}
