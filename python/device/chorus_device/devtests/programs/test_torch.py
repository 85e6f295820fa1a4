"""Tensors on the device: what PyTorch promises of every type of device, beside the operators of its database."""

import copy
import io
import pickle
import threading
import weakref

import torch
from torch.testing._internal.common_device_type import (
    deviceCountAtLeast,
    dtypes,
    instantiate_device_type_tests,
)
from torch.testing._internal.common_utils import TestCase, run_tests

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
ALL = (torch.bool, *INTEGERS, *FLOATS, *COMPLEX)


def numbers(n, dtype):
    """The CPU's tensor of n different numbers, as far as the type has so many."""
    return torch.arange(n).to(dtype)


class TestTorchDeviceType(TestCase):
    # ---- making and copying ----

    @dtypes(*ALL)
    def test_factories(self, device, dtype):
        for make in (torch.zeros, torch.ones, torch.empty):
            x = make(2, 3, dtype=dtype, device=device)
            self.assertEqual((x.shape, x.dtype, str(x.device)), ((2, 3), dtype, device))
        self.assertEqual(torch.zeros(3, dtype=dtype, device=device).cpu(), torch.zeros(3, dtype=dtype))
        self.assertEqual(torch.full((2,), 1, dtype=dtype, device=device).cpu(), torch.full((2,), 1, dtype=dtype))
        self.assertEqual(torch.tensor([0, 1], dtype=dtype, device=device).tolist(), numbers(2, dtype).tolist())
        self.assertEqual(torch.eye(3, dtype=dtype, device=device).cpu(), torch.eye(3, dtype=dtype))

    @dtypes(*INTEGERS, *FLOATS)
    def test_ranges(self, device, dtype):
        self.assertEqual(torch.arange(1, 20, 3, dtype=dtype, device=device).cpu(), torch.arange(1, 20, 3, dtype=dtype))
        if dtype.is_floating_point:
            got, want = (torch.linspace(-1, 2, 7, dtype=dtype, device=d) for d in (device, "cpu"))
            self.assertEqual(got.cpu(), want)

    @dtypes(*ALL)
    def test_like(self, device, dtype):
        x = torch.ones(2, 3, dtype=dtype, device=device).t()
        for y in (torch.empty_like(x), torch.zeros_like(x), x.new_ones(3, 2), x.clone()):
            self.assertEqual((y.shape, y.dtype, y.device), (x.shape, x.dtype, x.device))
        self.assertEqual(torch.empty_like(x).stride(), x.stride())

    @dtypes(*ALL)
    def test_there_and_back(self, device, dtype):
        for h in (numbers(12, dtype).reshape(3, 4), numbers(12, dtype).reshape(3, 4).t(), numbers(1, dtype)[0]):
            x = h.to(device)
            self.assertEqual(x.cpu(), h)
            self.assertEqual(x.stride(), h.stride())
            self.assertIs(x.to(device), x)

    @dtypes(*ALL)
    def test_copies_of_parts(self, device, dtype):
        h = numbers(24, dtype).reshape(4, 6)
        x = torch.zeros(4, 6, dtype=dtype, device=device)
        x[1:, ::2].copy_(h[1:, ::2])
        want = torch.zeros(4, 6, dtype=dtype)
        want[1:, ::2] = h[1:, ::2]
        self.assertEqual(x.cpu(), want)
        back = torch.zeros(6, 4, dtype=dtype)
        back.t().copy_(x)
        self.assertEqual(back, want.t())

    @dtypes(*ALL)
    def test_conversions(self, device, dtype):
        h = torch.tensor([0, 1, 2, 3])
        for other in ALL:
            if dtype.is_complex and not other.is_complex:
                continue
            self.assertEqual(h.to(dtype).to(device).to(other).cpu(), h.to(dtype).to(other))
            self.assertEqual(h.to(dtype).to(device, other).cpu(), h.to(dtype).to(other))

    def test_copies_that_do_not_block(self, device):
        h = torch.arange(1000.0)
        x = h.to(device, non_blocking=True)
        back = (x + 1).to("cpu", non_blocking=True)
        torch.accelerator.synchronize(device)
        self.assertEqual(back, h + 1)

    @deviceCountAtLeast(2)
    def test_between_devices(self, devices):
        x = torch.arange(12.0, device=devices[0]).reshape(3, 4).t()
        y = x.to(devices[1])
        self.assertEqual((str(y.device), y.stride(), y.cpu()), (devices[1], x.stride(), x.cpu()))
        with self.assertRaises(RuntimeError):
            x + y

    def test_tensors_of_two_types_of_device(self, device):
        with self.assertRaises(RuntimeError):
            torch.ones(3, device=device) + torch.ones(3)
        self.assertEqual((torch.ones(3, device=device) + torch.tensor(2.0)).cpu(), torch.full((3,), 3.0))

    # ---- numbers, text ----

    @dtypes(*ALL)
    def test_numbers_of_the_host(self, device, dtype):
        x = numbers(6, dtype).to(device)
        self.assertEqual(x.tolist(), numbers(6, dtype).tolist())
        self.assertEqual(x[1].item(), numbers(6, dtype)[1].item())
        with self.assertRaises(TypeError):
            x.numpy()
        with self.assertRaises(RuntimeError):
            x.item()

    def test_truth_and_numbers(self, device):
        x = torch.tensor([3], device=device)
        self.assertTrue(x)
        self.assertEqual((int(x), float(x), list(range(10))[x]), (3, 3.0, 3))
        with self.assertRaises(RuntimeError):
            bool(torch.ones(2, device=device))

    def test_text(self, device):
        x = torch.tensor([[1.0, 2.5], [-3.0, float("inf")]], device=device)
        self.assertEqual(str(x), str(x.cpu())[:-1] + f", device='{device}')")
        self.assertIn("size=(2, 0)", str(torch.empty(2, 0, device=device)))

    # ---- views ----

    @dtypes(*ALL)
    def test_views_share_memory(self, device, dtype):
        x = torch.zeros(4, 6, dtype=dtype, device=device)
        h = torch.zeros(4, 6, dtype=dtype)
        for t in (x, h):
            for part in (t[1], t.t()[2], t.view(24)[::5], t.narrow(1, 3, 2), t.unfold(0, 2, 2), t.diagonal()):
                part.fill_(1)
        self.assertEqual(x.cpu(), h)
        self.assertEqual(x.view(-1)[3:].data_ptr(), x.data_ptr() + 3 * x.element_size())
        with self.assertRaises(RuntimeError):
            x.t().view(24)

    def test_expanded(self, device):
        x = torch.arange(3.0, device=device).expand(4, 3)
        self.assertEqual(x.stride(), (0, 1))
        self.assertEqual((x + x.contiguous()).cpu(), torch.arange(3.0).expand(4, 3) * 2)
        with self.assertRaises(RuntimeError):
            x.add_(1)

    def test_types_as_views(self, device):
        h = torch.arange(8.0)
        self.assertEqual(h.to(device).view(torch.int32).cpu(), h.view(torch.int32))
        self.assertEqual(torch.view_as_complex(h.to(device).view(4, 2)).cpu(), torch.view_as_complex(h.view(4, 2)))
        z = torch.tensor([1 + 2j], device=device)
        self.assertTrue(z.conj().is_conj())
        self.assertEqual(z.conj().imag.cpu(), torch.tensor([-2.0]))

    def test_versions(self, device):
        x = torch.zeros(3, device=device)
        part = x[1:]
        part.add_(1)
        self.assertEqual((x._version, part._version), (1, 1))

    # ---- indexing ----

    @dtypes(*ALL)
    def test_reading_by_index(self, device, dtype):
        h = numbers(24, dtype).reshape(2, 3, 4)
        x = h.to(device)
        rows, columns = torch.tensor([1, 0, 1]), torch.tensor([[2], [0], [1]])
        large = (h.real if dtype.is_complex else h) > 7
        for index in (
            (1,), (-1, ..., 2), (slice(None), slice(0, 3, 2)), (None, 0), (rows,), (slice(None), columns, 1),
            (rows, torch.tensor([2, 1, 0])), (large,), (),
        ):  # fmt: skip
            there = tuple(i.to(device) if isinstance(i, torch.Tensor) else i for i in index)
            self.assertEqual(x[there].cpu(), h[index])

    @dtypes(*ALL)
    def test_writing_by_index(self, device, dtype):
        both = [numbers(12, dtype).reshape(3, 4), numbers(12, dtype).reshape(3, 4).to(device)]
        for t in both:
            t[0, 1] = 1
            t[:, 2] = t[:, 0]
            t[torch.tensor([0, 2], device=t.device)] = torch.ones(4, dtype=dtype, device=t.device)
            t[t == 1] = 0
        self.assertEqual(both[1].cpu(), both[0])

    def test_writing_to_one_place_twice(self, device):
        x = torch.zeros(3, device=device)
        x.index_put_((torch.tensor([1, 1, 2], device=device),), torch.ones(3, device=device), accumulate=True)
        x.scatter_add_(0, torch.tensor([0, 0], device=device), torch.ones(2, device=device))
        self.assertEqual(x.cpu(), torch.tensor([2.0, 2.0, 1.0]))

    def test_index_out_of_range(self, device):
        with self.assertRaises(IndexError):
            torch.zeros(3, device=device)[3]

    # ---- arithmetic ----

    @dtypes(*ALL)
    def test_types_of_results(self, device, dtype):
        for other in ALL:
            x, y = torch.ones(2, dtype=dtype, device=device), torch.ones(2, dtype=other, device=device)
            self.assertEqual((x * y).dtype, torch.promote_types(dtype, other))
            self.assertEqual((x * y[0]).dtype, torch.result_type(x, y[0]))
        got, want = (torch.ones(2, dtype=dtype, device=d) * 2.5 for d in (device, "cpu"))
        self.assertEqual(got.dtype, want.dtype)

    @dtypes(*ALL)
    def test_nothing_and_one(self, device, dtype):
        for shape in ((0,), (2, 0, 3), ()):
            h = torch.ones(shape, dtype=dtype)
            x = h.to(device)
            self.assertEqual((x * x).cpu(), h * h)
            self.assertEqual(x.sum().cpu(), h.sum())
            self.assertEqual(torch.cat([x.reshape(-1), x.reshape(-1)]).cpu(), torch.cat([h.reshape(-1), h.reshape(-1)]))
            self.assertEqual(x.clone().fill_(0).cpu(), torch.zeros(shape, dtype=dtype))

    def test_wrong_shapes(self, device):
        x = torch.ones(2, 3, device=device)
        for wrong in (lambda: x + torch.ones(4, device=device), lambda: x @ x, lambda: x.view(5), lambda: x.sum(2)):
            with self.assertRaises((RuntimeError, IndexError)):
                wrong()
        self.assertEqual((x + 1).cpu(), torch.full((2, 3), 2.0))

    def test_given_results(self, device):
        x = torch.arange(6.0, device=device).reshape(2, 3)
        out = torch.empty(0, device=device)
        self.assertIs(torch.add(x, 1, out=out), out)
        self.assertEqual(out.cpu(), x.cpu() + 1)
        columns = torch.zeros(3, 2, device=device).t()
        torch.mul(x, 2, out=columns)
        self.assertEqual((columns.stride(), columns.cpu()), ((1, 2), x.cpu() * 2))
        with self.assertRaises(RuntimeError):
            torch.add(x, 1, out=torch.empty(2, 3, dtype=torch.int64, device=device))

    def test_memory_formats(self, device):
        x = torch.arange(48.0, device=device).reshape(2, 3, 2, 4).to(memory_format=torch.channels_last)
        self.assertTrue(x.is_contiguous(memory_format=torch.channels_last))
        self.assertTrue((x + 1).is_contiguous(memory_format=torch.channels_last))
        self.assertEqual(x.contiguous().cpu().flatten(), torch.arange(48.0))

    # ---- storages ----

    def test_resize(self, device):
        x = torch.arange(4.0, device=device)
        x.resize_(2, 3)
        self.assertEqual(x.cpu().flatten()[:4], torch.arange(4.0))
        self.assertEqual(x.resize_(2).cpu(), torch.arange(2.0))
        x.untyped_storage().resize_(0)
        self.assertEqual(x.untyped_storage().nbytes(), 0)

    def test_set(self, device):
        x = torch.arange(6.0, device=device)
        y = torch.empty(0, device=device).set_(x.untyped_storage(), 1, (2, 2), (2, 1))
        y.zero_()
        self.assertEqual(x.tolist(), [0, 0, 0, 0, 0, 5])
        z = torch.nn.Parameter(torch.zeros(2, device=device))
        z.data = x[4:]
        self.assertEqual(z.tolist(), [0, 5])

    def test_memory_is_released(self, device):
        x = torch.ones(1 << 16, device=device)
        gone = weakref.ref(x.untyped_storage())
        y = x[::2]
        del x
        self.assertIsNotNone(gone())
        del y
        self.assertIsNone(gone())

    # ---- files ----

    @dtypes(*ALL)
    def test_files(self, device, dtype):
        x = numbers(6, dtype).to(device).reshape(2, 3)
        file = io.BytesIO()
        torch.save({"whole": x, "part": x[0], "parameter": torch.nn.Parameter(x, requires_grad=False)}, file)
        for where, wanted in ((None, device), ("cpu", "cpu")):
            file.seek(0)
            got = torch.load(file, map_location=where, weights_only=True)
            self.assertEqual(str(got["whole"].device), wanted)
            self.assertEqual(got["whole"].cpu(), x.cpu())
            self.assertEqual(got["part"].untyped_storage()._cdata, got["whole"].untyped_storage()._cdata)

    def test_copies_of_objects(self, device):
        x = torch.arange(4.0, device=device, requires_grad=True)
        for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
            self.assertEqual((str(y.device), y.requires_grad, y.detach().cpu()), (device, True, x.detach().cpu()))
            self.assertNotEqual(y.data_ptr(), x.data_ptr())

    # ---- gradients ----

    def test_gradients(self, device):
        w = torch.arange(6.0, device=device).reshape(2, 3).requires_grad_()
        (w.exp() * w).sum().backward()
        h = w.detach().cpu()
        self.assertEqual(w.grad.cpu(), h.exp() * (h + 1))
        self.assertEqual(w.grad.device, w.device)

    def test_second_gradients(self, device):
        x = torch.tensor([0.5, 1.5], device=device, requires_grad=True)
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        self.assertEqual(second.cpu(), 6 * x.detach().cpu())

    def test_gradients_across_devices(self, device):
        x = torch.ones(3, requires_grad=True)
        (x.to(device) * 2).sum().cpu().backward()
        self.assertEqual(x.grad, torch.full((3,), 2.0))

    def test_hooks_and_saved_tensors(self, device):
        seen = []
        x = torch.ones(2, device=device, requires_grad=True)
        x.register_hook(lambda g: seen.append(str(g.device)))
        x.mul(3).sum().backward()
        self.assertEqual(seen, [device])
        y = x.exp()
        y.add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.sum().backward()

    def test_backward_in_a_thread(self, device):
        x = torch.ones(2, device=device, requires_grad=True)
        thread = threading.Thread(target=lambda: (x * 2).sum().backward())
        thread.start()
        thread.join()
        self.assertEqual(x.grad.cpu(), torch.full((2,), 2.0))

    # ---- modules ----

    def test_training(self, device):
        def trained(where, **options):
            torch.manual_seed(0)
            first, last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
            model = torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.LayerNorm(8), last).to(where)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **options)
            data = torch.randn(16, 4).to(where)
            for _ in range(3):
                optimizer.zero_grad()
                model(data).square().mean().backward()
                optimizer.step()
            return [p.detach().cpu() for p in model.parameters()]

        for options in ({}, {"foreach": True}):
            self.assertEqual(trained(device, **options), trained("cpu", **options), atol=1e-4, rtol=1e-4)

    def test_modules_move(self, device):
        model = torch.nn.BatchNorm1d(3).to(device)
        self.assertEqual({str(t.device) for t in (*model.parameters(), *model.buffers())}, {device})
        state = copy.deepcopy(model.state_dict())
        other = torch.nn.BatchNorm1d(3)
        other.load_state_dict(state)
        self.assertEqual(other.weight, model.weight.cpu())

    def test_on_meta_and_back(self, device):
        with torch.device("meta"):
            model = torch.nn.Linear(2, 2)
        model.to_empty(device=device)
        self.assertEqual(str(model.weight.device), device)

    # ---- random numbers ----

    def test_seeds(self, device):
        def drawn():
            return [f(5, device=device).cpu() for f in (torch.rand, torch.randn, torch.randperm)]

        torch.manual_seed(3)
        first = drawn()
        self.assertNotEqual(drawn()[0], first[0])
        torch.manual_seed(3)
        self.assertEqual(drawn(), first)
        self.assertEqual(first[2].sort()[0], torch.arange(5))

    def test_generators(self, device):
        generator = torch.Generator(device).manual_seed(5)
        state = generator.get_state()
        first = torch.rand(4, device=device, generator=generator)
        generator.set_state(state)
        self.assertEqual(torch.rand(4, device=device, generator=generator), first)
        self.assertEqual((str(generator.device), generator.initial_seed()), (device, 5))

    @dtypes(*FLOATS)
    def test_distributions(self, device, dtype):
        x = torch.empty(10000, dtype=dtype, device=device)
        self.assertTrue(bool(((x.uniform_(2, 3) >= 2) & (x <= 3)).all()))
        self.assertLess(abs(x.normal_(1, 0.5).double().mean().item() - 1), 0.05)
        self.assertLess(abs(x.bernoulli_(0.25).double().mean().item() - 0.25), 0.03)

    # ---- streams ----

    def test_streams(self, device):
        stream = torch.Stream(device)
        before = torch.accelerator.current_stream(device)
        with stream:
            self.assertEqual(torch.accelerator.current_stream(device), stream)
            x = torch.ones(1000, device=device) * 2
            event = stream.record_event()
        self.assertEqual(torch.accelerator.current_stream(device), before)
        before.wait_event(event)
        self.assertEqual((x + 1).cpu(), torch.full((1000,), 3.0))
        stream.synchronize()
        self.assertTrue(event.query())

    def test_events_measure_time(self, device):
        begin, end = (torch.Event(device, enable_timing=True) for _ in range(2))
        begin.record()
        torch.ones(1000, device=device).sin()
        end.record()
        end.synchronize()
        self.assertGreaterEqual(begin.elapsed_time(end), 0)

    # ---- types that are chosen for a region ----

    def test_autocast(self, device):
        kind = torch.device(device).type
        x = torch.ones(4, 4, device=device)
        with torch.autocast(kind, dtype=torch.bfloat16):
            self.assertEqual((x @ x).dtype, torch.bfloat16)
        self.assertEqual((x @ x).dtype, torch.float32)

    def test_default_device(self, device):
        with torch.device(device):
            self.assertEqual({str(t.device) for t in (torch.ones(2), torch.tensor(1), torch.randn(2))}, {device})


instantiate_device_type_tests(TestTorchDeviceType, globals())

if __name__ == "__main__":
    run_tests()
