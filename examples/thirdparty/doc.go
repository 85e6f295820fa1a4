// Package thirdparty is a module outside of Chorus whose packages plug into it
// through the doors that its own parts use:
//
//	mybackend  a backend over a vendor's library, which mylib stands in for
//	myfabric   a fabric: unix sockets
//	mydriver   a device driver: two devices whose streams are goroutines
//	mydevice   torch.device("mydevice"): mydriver in PyTorch, and a Python package of a few lines
//	myplan     an algorithm: an all-reduce that uses a ring in both directions
//
// Each passes the suite that Chorus' own parts pass: comm/commtest,
// fabric/fabrictest, device/devicetest and plan.Prove. A program uses them by importing them:
//
//	import _ "example.com/thirdparty/mybackend"
//
//	c, err := comm.New(ctx, comm.WithBackend("mylib"))
package thirdparty
