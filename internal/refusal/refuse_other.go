//go:build !linux

package refusal

import "errors"

func refuse([]string) error { return errors.New("needs Linux") }

var calls []call
