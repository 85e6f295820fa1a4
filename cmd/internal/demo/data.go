package demo

import (
	"math/rand/v2"

	"github.com/chorus-comms/chorus/internal/digits"
)

// heldOut is how many images are kept for the test of what was learned: a fifth.
const heldOut = digits.Count / 5

// splitSeed decides which they are; it isn't the run's, so that all runs are tested alike.
const splitSeed = 1

// data is the images, divided.
type data struct {
	set         *digits.Set
	train, test []int // indices of images
}

func load() (*data, error) {
	set, err := digits.Load()
	if err != nil {
		return nil, err
	}
	order := rand.New(rand.NewPCG(splitSeed, 0)).Perm(digits.Count)
	return &data{set: set, train: order[heldOut:], test: order[:heldOut]}, nil
}

// epoch returns the training images in the order of an epoch, the same on every rank.
func (d *data) epoch(seed uint64, epoch int) []int {
	order := make([]int, len(d.train))
	for i, j := range rand.New(rand.NewPCG(seed, uint64(epoch)+1)).Perm(len(d.train)) {
		order[i] = d.train[j]
	}
	return order
}

// share returns a rank's part of a list: as nearly equal as whole images can be, in order.
func share(all []int, rank, size int) []int {
	n := len(all)
	return all[n*rank/size : n*(rank+1)/size]
}
