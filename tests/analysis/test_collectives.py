"""Counts and bytes of collectives: of real programs, and of forms that a CPU does not emit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from sgnjax.analysis import hlo
from sgnjax.analysis.collectives import Total, collectives, summary

AXES = ('data', 'fsdp', 'tensor', 'sequence')


@pytest.fixture(scope='module')
def mesh():
  devices = np.asarray(jax.devices()).reshape(2, 2, 1, 2)
  return Mesh(devices, AXES, axis_types=(AxisType.Auto,) * 4)


@pytest.fixture(scope='module')
def found(mesh):
  """Of a program that says each kind a known number of times, about (64, 128) float32."""

  def program(x):
    def inner(x, _):
      x = jax.lax.all_to_all(x, 'sequence', 0, 1, tiled=True)
      return jax.lax.all_to_all(jnp.cos(x), 'sequence', 1, 0, tiled=True), None

    def outer(x, _):
      x = jax.lax.psum(jnp.sin(x), 'data') * 0.5
      return jax.lax.scan(inner, x, None, length=3)[0], None

    x, _ = jax.lax.scan(outer, x, None, length=5)
    x = jax.lax.ppermute(x, 'fsdp', [(0, 1), (1, 0)])
    x = jax.lax.all_gather(x, ('data', 'fsdp'), tiled=True)
    return jax.lax.psum_scatter(x, ('fsdp', 'sequence'), tiled=True)

  mapped = jax.shard_map(
    program, mesh=mesh, in_specs=P(), out_specs=P(('fsdp', 'sequence')), check_vma=False
  )
  whole = NamedSharding(mesh, P())
  x = jax.ShapeDtypeStruct((64, 128), jnp.float32, sharding=whole)
  return collectives(jax.jit(mapped).lower(x).compile().as_text(), mesh)


def test_a_program_of_known_collectives(found):
  array = 64 * 128 * 4
  assert summary(found) == {
    ('all-to-all', ('sequence',)): Total(30, 30 * array, 30 * array, 30 * array / 2),
    ('all-reduce', ('data',)): Total(5, 5 * array, 5 * array, 5 * array),
    ('all-gather', ('data', 'fsdp')): Total(1, array, 4 * array, 3 * array),
    ('reduce-scatter', ('fsdp', 'sequence')): Total(1, 4 * array, array, 3 * array),
    ('collective-permute', ('fsdp',)): Total(1, array, array, array),
  }
  assert all(c.turns_known for c in found)
  assert [c.group for c in found if c.kind == 'all-gather'] == [4]


def test_a_collective_says_what_it_is_for(found):
  (psum,) = (c for c in found if c.kind == 'all-reduce')
  assert psum.op_name.endswith('psum')
  assert psum.shapes == ('f32[64,128]',)
  assert all('all_to_all' in c.op_name for c in found if c.kind == 'all-to-all')


def test_what_the_partitioner_inserts_is_seen(mesh):
  """A product along a sharded dimension is summed; a weight that is kept in parts is gathered."""

  def forward(w_DF, x_BD, *, gathered):
    if gathered:
      w_DF = jax.lax.with_sharding_constraint(w_DF, NamedSharding(mesh, P()))
    return x_BD @ w_DF

  def compiled(w, x, gathered):
    arguments = [
      jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, spec))
      for spec in (w, x)
    ]
    rows = NamedSharding(mesh, P(('data', 'fsdp')))
    step = jax.jit(forward, out_shardings=rows, static_argnames='gathered')
    return summary(collectives(step.lower(*arguments, gathered=gathered).compile().as_text(), mesh))

  gathered = compiled(P(None, 'fsdp'), P(('data', 'fsdp')), True)
  assert gathered == {('all-gather', ('fsdp',)): Total(1, 8192, 16384, 8192)}
  inner = compiled(P('sequence'), P(('data', 'fsdp'), 'sequence'), False)
  assert inner == {('all-reduce', ('sequence',)): Total(1, 4096, 4096, 4096)}


MODULE = """HloModule made, num_partitions=8

%sum (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}}
{computations}
ENTRY %main (x: f32[16,8]) -> f32[] {{
  %x = f32[16,8]{{1,0:T(8,128)S(1)}} parameter(0)
  %zero = s32[]{{:T(128)}} constant(0)
{lines}
}}
"""


def made(lines, mesh, computations=''):
  indented = '\n'.join(f'  {line}' for line in lines.strip().splitlines())
  return collectives(MODULE.format(lines=indented, computations=computations), mesh)


@pytest.mark.parametrize(
  ('groups', 'axes', 'group'),
  [
    ('{{0,4},{1,5},{2,6},{3,7}}', ('data',), 2),
    ('{{0,1,2,3,4,5,6,7}}', ('data', 'fsdp', 'sequence'), 8),
    ('{}', ('data', 'fsdp', 'sequence'), 8),
    ('[4,2]<=[8]', ('sequence',), 2),
    ('[2,4]<=[8]', ('fsdp', 'sequence'), 4),
    ('[4,2]<=[2,4]T(1,0)', ('data',), 2),
    ('[2,4]<=[4,2]T(1,0)', ('data', 'fsdp'), 4),
    ('[4,2]<=[2,2,2]T(0,2,1)', ('fsdp',), 2),
    ("mesh['data'=2,'fsdp'=2,'tensor'=1,'sequence'=2] {'data','fsdp'}", ('data', 'fsdp'), 4),
    ("mesh['x'=8] {'x':(2)2}", ('fsdp',), 2),
    ("mesh['x'=8] {'x':(1)4}", ('data', 'fsdp'), 4),
    ("mesh['x'=8] {'x':(1)2,'x':(4)2}", ('data', 'sequence'), 4),
    ("mesh['x'=4,'y'=2], device_ids=([2,4]T(1,0)) {'y'}", ('data',), 2),
    ("mesh['x'=2,'y'=4], device_ids=(0,1,4,5,2,3,6,7) {'x'}", ('fsdp',), 2),
  ],
)
def test_groups_as_axes(groups, axes, group, mesh):
  line = f'ROOT %r = f32[16,8]{{1,0}} all-reduce(%x), replica_groups={groups}, to_apply=%sum'
  (one,) = made(line, mesh)
  assert (one.axes, one.group, one.operand) == (axes, group, 512)
  assert one.moved == 2 * 512 * (group - 1) / group


def test_groups_that_are_not_known_are_refused(mesh):
  with pytest.raises(ValueError, match='not understood'):
    made('ROOT %r = f32[16,8] all-reduce(%x), replica_groups=<8>, to_apply=%sum', mesh)
  with pytest.raises(ValueError, match='no ENTRY'):
    collectives('module @jit_step {}', mesh)


def test_asynchronous_pairs_count_once(mesh):
  wrapped = """
%wrapped (p: f32[16,8]) -> f32[2,8] {
  %p = f32[16,8]{1,0} parameter(0)
  ROOT %rs = f32[2,8]{1,0} reduce-scatter(%p), replica_groups=[1,8]<=[8], to_apply=%sum
}
"""
  lines = """
%g = (f32[16,8]{1,0}, f32[32,8]{1,0}) all-gather-start(%x), replica_groups=[4,2]<=[8]
%gd = f32[32,8]{1,0} all-gather-done(%g)
%p = (f32[16,8], f32[16,8], u32[], u32[]) collective-permute-start(%x), source_target_pairs={{0,1}}
%pd = f32[16,8] collective-permute-done(%p)
%c = (bf16[16,8], bf16[16]) all-reduce-start(%u, %v), replica_groups={}, to_apply=%sum
%u = bf16[16,8] convert(%x)
%v = bf16[16] slice(%x)
%cd = (bf16[16,8], /*index=1*/bf16[16]) all-reduce-done(%c)
%a = ((f32[16,8]), f32[2,8], u32[]) async-start(%x), calls=%wrapped
%ad = f32[2,8] async-done(%a), calls=%wrapped
ROOT %e = ((f32[16,8]), f32[2,8], u32[]) reduce-scatter-start(%x), replica_groups=[1,8]<=[8]
"""
  sums = summary(made(lines, mesh, wrapped))
  every = ('data', 'fsdp', 'sequence')
  assert sums == {
    ('reduce-scatter', every): Total(2, 1024, 128, 896.0),
    ('all-gather', ('sequence',)): Total(1, 512, 1024, 512.0),
    ('collective-permute', ('sequence',)): Total(1, 512, 512, 512.0),
    ('all-reduce', every): Total(1, 288, 288, 2 * 288 * 7 / 8),
  }


def test_the_fused_slice_of_an_all_reduce_is_a_reduce_scatter(mesh):
  fused = """
%all-reduce-scatter.1 (p: f32[16,8]) -> f32[8,8] {
  %p = f32[16,8]{1,0} parameter(0)
  %all = f32[16,8]{1,0} all-reduce(%p), replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%sum
  ROOT %s = f32[8,8]{1,0} slice(%all)
}
"""
  lines = 'ROOT %f = f32[8,8]{1,0} fusion(%x), kind=kCustom, calls=%all-reduce-scatter.1'
  assert list(summary(made(lines, mesh, fused)).values()) == [Total(1, 512, 256, 256.0)]


def test_an_all_reduce_of_which_a_slice_is_kept_is_a_reduce_scatter(mesh):
  lines = """
%place = s32[] parameter(1)
%all = f32[16,8] all-reduce(%x), replica_groups={{{{0,1}},{{2,3}},{{4,5}},{{6,7}}}}, to_apply=%sum
%narrow = bf16[16,8] convert(%all)
{}
ROOT %kept = bf16[{},8] dynamic-slice(%narrow, %place, %zero), dynamic_slice_sizes={{{},8}}
"""
  other = '%whole = f32[16,8] negate(%all)'
  for line, part, kind in (('', 8, 'scatter'), ('', 4, 'all-reduce'), (other, 8, 'all-reduce')):
    (one,) = made(lines.format(line, part, part), mesh)
    assert kind in one.kind


def test_the_partitioners_own_text_keeps_narrow_types(mesh):
  """A CPU would widen what is gathered here to float32, and all-reduce the gradient whole."""
  rows, parts = NamedSharding(mesh, P('fsdp')), NamedSharding(mesh, P(None, 'fsdp'))

  def loss(w_DF, x_BD):
    w_DF = jax.lax.with_sharding_constraint(w_DF, NamedSharding(mesh, P()))
    return jnp.sum((x_BD @ w_DF).astype(jnp.float32) ** 2)

  w_DF = jax.ShapeDtypeStruct((64, 64), jnp.bfloat16, sharding=parts)
  x_BD = jax.ShapeDtypeStruct((32, 64), jnp.bfloat16, sharding=rows)
  gradient = jax.jit(jax.grad(loss), out_shardings=parts).lower(w_DF, x_BD)
  text, compiled = hlo.partitioned(gradient)
  ours = summary(collectives(text, mesh))
  assert ours['all-gather', ('fsdp',)] == Total(1, 4096, 8192, 4096)
  assert sum(t.result for (kind, _), t in ours.items() if kind == 'reduce-scatter') == 4096
  theirs = summary(collectives(compiled.as_text(), mesh))
  assert theirs['all-gather', ('fsdp',)].result == 16384


LOOP = """
%body (s: (s32[], f32[16,8])) -> (s32[], f32[16,8]) {{
  %s = (s32[], f32[16,8]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %v = f32[16,8] get-tuple-element(%s), index=1
  %one = s32[] constant({step})
  %copied = s32[] copy(%i)
  %next = s32[] add(%copied, %one)
  %r = f32[16,8] all-reduce(%v), replica_groups={{}}, to_apply=%sum
  ROOT %t = (s32[], f32[16,8]) tuple(%next, %r)
}}

%less (p: s32[], q: s32[]) -> pred[] {{
  %p = s32[] parameter(0)
  %q = s32[] parameter(1)
  ROOT %c = pred[] compare(%p, %q), direction={direction}
}}

%condition (s: (s32[], f32[16,8])) -> pred[] {{
  %s = (s32[], f32[16,8]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] {limit}
  ROOT %w = pred[] fusion(%i, %n), kind=kLoop, calls=%less
}}
"""


@pytest.mark.parametrize(
  ('step', 'direction', 'limit', 'note', 'times'),
  [
    (1, 'LT', 'constant(7)', '', 7),
    (2, 'LT', 'constant(7)', '', 4),
    (1, 'LE', 'constant(7)', '', 8),
    (1, 'LT', 'constant(7)', ', backend_config={"known_trip_count":{"n":"5"}}', 5),
    (1, 'LT', 'get-tuple-element(%s), index=2', '', None),
    (1, 'NE', 'constant(7)', '', None),
  ],
)
def test_turns_of_a_loop(step, direction, limit, note, times, mesh):
  lines = f"""
%start = s32[] copy(%zero)
%state = (s32[], f32[16,8]) tuple(%start, %x)
ROOT %w = (s32[], f32[16,8]) while(%state), condition=%condition, body=%body{note}
"""
  loop = LOOP.format(step=step, direction=direction, limit=limit)
  (one,) = made(lines, mesh, loop)
  assert (one.times, one.turns_known) == ((times, True) if times else (1, False))


def test_branches_count_once_each(mesh):
  branch = """
%one (p: f32[16,8]) -> f32[16,8] {
  %p = f32[16,8] parameter(0)
  ROOT %r = f32[16,8] all-reduce(%p), replica_groups={}, to_apply=%sum
}
%two (p: f32[16,8]) -> f32[16,8] {
  %p = f32[16,8] parameter(0)
  ROOT %r = f32[16,8] all-to-all(%p), replica_groups={}, dimensions={0}
}
"""
  lines = """
%c = f32[16,8] conditional(%zero, %x, %x), branch_computations={%one, %two}
ROOT %d = f32[16,8] conditional(%zero, %x, %x), true_computation=%one, false_computation=%two
"""
  assert [c.times for c in made(lines, mesh, branch)] == [2, 2]


def test_sizes():
  assert hlo.size('bf16[8,128]') == 2048
  assert hlo.size('pred[3]') == 3
  assert hlo.size('f8e4m3fn[4]') == 4
  assert hlo.size('s4[3]') == 2
  assert hlo.size('f32[]') == 4
  assert hlo.size('c64[2]') == 16
