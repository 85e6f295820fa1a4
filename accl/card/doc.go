// Package card has ACCL's engines on cards: what a driver needs of a card is a Card, registers and memory, and New
// makes it the driver's device. OpenXRT opens a card with XRT, whose library is found at run time; Coyote is one with
// Coyote's shell.
//
//	c, err := card.OpenXRT(card.XRT{Xclbin: "ccl_offload.xclbin"})
//	d, err := accl.New(ctx, card.New(c), accl.Config{Ranks: ranks, Local: 0})
//
// No card has been there to run it on: tests have a Card that stands in front of an engine in Go, and a stand-in for
// XRT's library. card.go is the interface; device.go is New; xrt.go and coyote.go are the two shells.
//
// Limits: one call at a time is under way. A card can't drop a call that waits for another rank: what a context ends is
// waited for a second more, and then the device is broken, for the card may still write to its buffers. The streams of
// kernels are the card's: Push and Pull refuse, and Attach is told of nothing, so that comm/accl has no messages on
// cards.
package card
