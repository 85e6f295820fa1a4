// Command example is a job whose ranks meet in etcd, wherever they run:
//
//	go build -o meet ./example
//	CHORUS_STORE=etcd://127.0.0.1:2379 chorus run -n 4 ./meet
//
// The import is all that a program needs.
package main

import (
	"context"
	"fmt"
	"log"

	_ "github.com/chorus-comms/chorus/adapters/etcd"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

func main() {
	log.SetFlags(0)
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	c, err := comm.New(ctx)
	if err != nil {
		return err
	}
	x := []int64{int64(c.Rank())}
	if err := c.AllReduce(ctx, tensor.Of(x), comm.Sum); err != nil {
		return err
	}
	fmt.Println("sum", x[0])
	return c.Finalize(ctx)
}
