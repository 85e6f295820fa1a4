// Package card has ACCL's engines on cards: what a driver needs of a card is a Card, registers and memory, and New
// makes it the driver's device. OpenXRT opens a card with XRT, whose library is found at run time; Coyote is one with
// Coyote's shell.
//
//	c, err := card.OpenXRT(card.XRT{Xclbin: "ccl_offload.xclbin"})
//	d, err := accl.New(ctx, card.New(c), accl.Config{Ranks: ranks, Local: 0})
//
// It has never run on a card. Tests have a Card in front of an engine in Go, and a stand-in for XRT's library. card.go
// is the interface; device.go is New; xrt.go and coyote.go are the two shells.
//
// Limits: one call at a time is under way. A card can't drop a call that waits for another rank. When its context ends,
// the call has a second more; then the device is broken, since the card may still write to the buffers. The streams of
// kernels are the card's: Push and Pull fail, and Attach gets no events, so that comm/accl has no messages on cards.
package card
