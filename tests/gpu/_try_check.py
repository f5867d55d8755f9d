import sys, time, functools, importlib.util, math
sys.path.insert(0,".")
import torch, triton
from tuner.operators import get
from tuner.precision import PrecisionProfile
from tuner.checking import check, plan, ReferenceCache
import tuner.checking as C
def load(path):
    spec=importlib.util.spec_from_file_location("k",path); m=importlib.util.module_from_spec(spec); spec.loader.exec_module(m); return m
at=load("tests/kernels/attention_plain.py"); sm=load("tests/kernels/softmax_plain.py")
print(torch.__version__, triton.__version__)
RHO=[]
def ms(f,n=1):
    torch.cuda.synchronize(); t=time.perf_counter(); 
    for _ in range(n): r=f()
    torch.cuda.synchronize(); return (time.perf_counter()-t)/n*1e3, r
for dt in ("bf16",):
  op=get("attention_fwd")
  for causal,D,N,kvh in ((False,128,4096,32),(True,128,4096,8)):
    p=op.problem(dict(batch=4,heads=32,kv_heads=kvh,q_len=N,head_dim=D),dt,{"causal":causal})
    bm,bn=(64,32)
    prof=PrecisionProfile(dt,dt,p=dt,dot="ieee" if dt=="fp32" else "16bit",tiles=-(-N//bn))
    pl=plan(op,p,{"q_len":bm,"kv_len":bn},{},prof,full_size=True); cache=ReferenceCache(); RHO.clear()
    la=functools.partial(at.launch,IS_CAUSAL=causal,BLOCK_M=bm,BLOCK_N=bn,PROGRAMS=64)
    t1,r=ms(lambda: check(la,op,pl,"cuda",0,cache)); rho=list(RHO)
    t2,_=ms(lambda: check(la,op,pl,"cuda",0,cache))
    small=C.CheckPlan(tuple(c for c in pl.checks if c.problem!=p)); t3,_=ms(lambda: check(la,op,small,"cuda",0,cache))
    full=C.CheckPlan(tuple(c for c in pl.checks if c.problem==p)); t4,_=ms(lambda: check(la,op,full,"cuda",0,cache))
    x=cache.inputs(op,p,"randn",0,"cuda"); outs={n:torch.empty(s.shape,dtype=torch.float32 if s.dtype=="fp32" else x["q"].dtype,device="cuda") for n,s in op.output_specs(p).items()}
    tk,_=ms(lambda: la(**x,**outs,**op.scalars(p)),3); tr,_=ms(lambda: op.reference(p,x,prof),3); ti,_=ms(lambda: op.make_inputs(p,"randn",1,"cuda"),3)
    print(p.label,"passed",r.passed,r.reason,"worst",{f.family:round(f.ratio,3) for f in r.families},"n",len(r.families),"rho",rho)
    import cProfile,pstats
    if dt=="bf16" and not causal:
        pr=cProfile.Profile(); pr.runcall(lambda: check(la,op,small,"cuda",0,cache)); pstats.Stats(pr).sort_stats("tottime").print_stats(18)
        from torch.profiler import profile,ProfilerActivity
        pass

    print("   ms: first %.0f again %.1f small %.1f full %.1f | kernel %.2f reference %.1f inputs %.1f"%(t1,t2,t3,t4,tk,tr,ti), "cache MB", cache.nbytes>>20, "peak GB %.1f"%(torch.cuda.max_memory_allocated()/1e9))
  op=get("softmax")
  for sh in (dict(rows=4096,cols=1024),dict(rows=4096,cols=32768),dict(rows=8192,cols=131072),dict(rows=333,cols=1000,row_stride=1111)):
    if dt=="fp32" and sh["cols"]==131072: continue
    p=op.problem(sh,dt); RHO.clear(); cache=ReferenceCache()
    pl=plan(op,p,{"cols":1024},{},PrecisionProfile(dt,dt,tiles=-(-sh['cols']//1024)),full_size=True)
    la=functools.partial(sm.launch,BLOCK_COLS=1024,PROGRAMS=528)
    t1,r=ms(lambda: check(la,op,pl,"cuda",0,cache)); rho=list(RHO); t2,_=ms(lambda: check(la,op,pl,"cuda",0,cache))
    print(p.label,"passed",r.passed,r.reason,"worst",{f.family:round(f.ratio,3) for f in r.families},"n",len(r.families),"rho",rho)
    print("   ms: first %.0f again %.1f"%(t1,t2),"peak GB %.1f"%(torch.cuda.max_memory_allocated()/1e9)); torch.cuda.reset_peak_memory_stats()
# long context
op=get("attention_fwd"); p=op.problem(dict(batch=1,heads=4,q_len=131072,head_dim=64),"bf16",{"causal":True}); x=op.make_inputs(p,"randn",0,"cuda"); torch.cuda.reset_peak_memory_stats()
tr,ref=ms(lambda: op.reference(p,x,PrecisionProfile("bf16","bf16",p="bf16",dot="16bit",tiles=2048))); print("128k reference ms %.0f peak GB %.2f"%(tr,torch.cuda.max_memory_allocated()/1e9))
