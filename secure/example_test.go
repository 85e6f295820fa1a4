package secure_test

import (
	"errors"
	"fmt"
	"net"

	"github.com/chorus-comms/chorus/secure"
)

// Two processes of a job prove to each other that they have its secret, which is what `chorus secret` prints. A
// process without it learns nothing.
func ExampleSecret_Initiate() {
	ours, err := secure.Parse(secure.Generate())
	if err != nil {
		fmt.Println(err)
		return
	}
	theirs, err := secure.Parse(secure.Generate())
	if err != nil {
		fmt.Println(err)
		return
	}
	meet := func(a, b secure.Secret) (error, error) {
		x, y := net.Pipe()
		answer := make(chan error, 1)
		go func() {
			hello := make([]byte, 4) // which says what the connection is for
			_, err := y.Read(hello)
			err = errors.Join(err, b.Respond(y, hello))
			y.Close()
			answer <- err
		}()
		err := a.Initiate(x, []byte("mine"))
		x.Close()
		return err, <-answer
	}
	fmt.Println(meet(ours, ours))
	a, b := meet(ours, theirs)
	fmt.Println(a != nil, b != nil)
	// Output:
	// <nil> <nil>
	// true true
}

// A record in a store that isn't the job's own is sealed, for its name.
func ExampleSecret_Seal() {
	secret, err := secure.Parse(secure.Generate())
	if err != nil {
		fmt.Println(err)
		return
	}
	sealed := secret.Seal("address/3", []byte("10.0.0.3:4711"))
	value, err := secret.Open("address/3", sealed)
	fmt.Println(string(value), err)
	_, err = secret.Open("address/4", sealed)
	fmt.Println(errors.Is(err, secure.ErrSeal))
	// Output:
	// 10.0.0.3:4711 <nil>
	// true
}
