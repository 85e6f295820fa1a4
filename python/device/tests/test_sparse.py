"""Sparse tensors, against the CPU's: cases are in sparse_cases.py. test_native.py runs them on devices with kernels."""

import copy

import pytest
import sparse_cases
import torch
from worlds import longest

D = "accinte"

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")


def test_cases():
    found, n = sparse_cases.differences(D)
    assert found == [] and n > 300


@longest
@pytest.mark.long
def test_all_cases():
    found, n = sparse_cases.differences(D, full=True)
    assert found == [] and n > 2000


def test_text():
    s = torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,), device=D)
    assert str(s) == (
        "tensor(indices=tensor([[0, 1]]),\n       values=tensor([1., 2.]),\n       "
        "device='accinte:0', size=(3,), nnz=2, layout=torch.sparse_coo)"
    )
    s = torch.eye(2, device=D).to_sparse_csr()
    assert str(s).split(".]), ")[1].replace("\n      ", "") == (
        "device='accinte:0', size=(2, 2), nnz=2, layout=torch.sparse_csr)"
    )


def test_parts_are_the_tensors():
    """A tensor has the memory that it was made of, and so have its copies by reference."""
    i, v = torch.tensor([[0, 1]], device=D), torch.ones(2, device=D)
    s = torch.sparse_coo_tensor(i, v, (2,))
    assert s._values().data_ptr() == v.data_ptr() and s._indices().data_ptr() == i.data_ptr()
    v += 1
    assert s.to_dense().tolist() == [2, 2] and s.detach()._values().data_ptr() == v.data_ptr()
    assert copy.deepcopy(s)._values().data_ptr() != v.data_ptr()


def test_the_fallback_is_counted_and_writes_back():
    """An operator without kernels runs the CPU's, which replaces the parts of its result."""
    a, b = (torch.eye(3).to_sparse().to(D) for _ in range(2))
    out = torch.sparse_coo_tensor((3, 3), device=D)
    before = torch.accinte.fallback_counts().get("aten::sspaddmm.out", 0)
    torch.sspaddmm(a, b, torch.eye(3, device=D), out=out)
    assert torch.accinte.fallback_counts()["aten::sspaddmm.out"] == before + 1
    assert out.device.type == D and out._values().device.type == D
    assert torch.equal(out.to_dense().cpu(), 2 * torch.eye(3))


@pytest.mark.parametrize(
    "f",
    [
        lambda s: torch.mm(s, torch.ones(2, 2)),
        lambda s: s + torch.eye(2).to_sparse(),
        lambda s: s.to_sparse_csr() @ torch.ones(2, 2),
    ],
)
def test_tensors_of_the_host_are_refused(f):
    with pytest.raises(RuntimeError, match="at least two devices"):
        f(torch.eye(2, device=D).to_sparse())


def test_an_operator_that_the_cpu_lacks():
    with pytest.raises(NotImplementedError, match="is not implemented for sparse tensors of device accinte"):
        torch.eye(2, device=D).to_sparse().cumsum(0)


def test_a_module_with_a_sparse_buffer():
    model = torch.nn.Module()
    model.register_buffer("edges", torch.eye(3).to_sparse())
    model.to(D)
    assert model.edges.is_sparse and model.edges.device.type == D and model.edges.to_dense().sum().item() == 3


def test_invariants_are_checked():
    """A result is made in a function of the stream, which can't wait for operators that check it."""
    with torch.sparse.check_sparse_tensor_invariants():
        a = torch.eye(5).to_sparse_csr()
        x, y = torch.rand(5, 3), torch.rand(3, 5)
        want = torch.sparse.sampled_addmm(a, x, y)
        got = torch.sparse.sampled_addmm(a.to(D), x.to(D), y.to(D))
        assert torch.equal(got.to_dense().cpu(), want.to_dense())
