package engine

// copy moves elements from the first operand to the result.
func (c *Call) copy() { c.move(move{op0: c.op0(), res: c.res(), count: c.count()}) }

// combine combines both operands.
func (c *Call) combine() { c.move(move{op0: c.op0(), op1: c.op1(), res: c.res(), count: c.count()}) }
