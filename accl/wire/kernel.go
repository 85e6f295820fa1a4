package wire

import (
	"fmt"
	"strconv"
)

// streamMessage returns the frames of data for a stream of a kernel.
func streamMessage(stream uint32, data []byte) (id, payload []byte) {
	return strconv.AppendUint(nil, uint64(stream), 10), encodePayload(data)
}

// parseStream is the other way round.
func parseStream(frames [][]byte) (stream uint32, data []byte, err error) {
	if len(frames) != 2 {
		return 0, nil, fmt.Errorf("%d frames", len(frames))
	}
	n, err := strconv.ParseUint(string(frames[0]), 10, 32)
	if err != nil {
		return 0, nil, err
	}
	data, err = decodePayload(frames[1])
	return uint32(n), data, err
}
