// The backend: choice of the GPU, its stream, and the padding of forwards.
#include <algorithm>

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/instructions/warpgroups.cuh"
#include "kernels/cuda/memory/memory.cuh"
#include "kernels/cuda/memory/replay.cuh"
#include "kernels/cuda/memory/transfers.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/ranks/peer_memory.cuh"

namespace foretoken {
namespace {

[[noreturn]] void refuse(cudaError_t status) {
  throw Error(std::string("device cuda: the CUDA driver answers \"") + cudaGetErrorString(status) +
              "\"; use a machine with a GPU and a driver, or \"device\": \"cpu\"");
}

// Throws Error unless there is a GPU with that number.
void expect_device(int device) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) refuse(status);
  if (device < 0 || device >= devices)
    throw Error("device cuda:" + std::to_string(device) + ": this machine has " + std::to_string(devices) +
                " GPUs, numbered from 0; choose one of them, or \"device\": \"cpu\"");
}

// The attributes of the image of this kernel that the GPU would run give the architecture for which it was built, and
// its shared memory whether it uses the instructions of 90a.
__global__ void built_probe() {
#if defined(__CUDA_ARCH__) && defined(FORETOKEN_WARPGROUPS)
  __shared__ volatile int there[32];
  there[threadIdx.x % 32] = 1;
#endif
}

struct Built {
  int architecture;  // of the code; the driver may have compiled its PTX for a later one
  bool warpgroups;
};

Built what_is_built(const std::string& gpu) {
  cudaFuncAttributes probe = {};
  const cudaError_t status = cudaFuncGetAttributes(&probe, built_probe);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    (void)cudaGetLastError();  // clears the error, so that the next call does not return it
    throw Error("device cuda: " + gpu +
                " can run none of the kernels that were built; build on that machine, or set CMAKE_CUDA_ARCHITECTURES, "
                "or use \"device\": \"cpu\"");
  }
  check(status, "looking for kernels that this GPU can run");
  return {probe.ptxVersion, probe.sharedSizeBytes > 0};
}

std::string version(int v) { return std::to_string(v / 1000) + '.' + std::to_string(v % 1000 / 10); }

}  // namespace

CudaBackend::CudaBackend(const CudaOptions& options) : options_(options) {
  expect_device(options.device);
  make_current(options.device, 0);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, options.device), "reading the GPU's properties");
  multiprocessors_ = properties.multiProcessorCount;
  const int gpu = properties.major * 10 + properties.minor;
  limit_shared_memory(std::int64_t(properties.sharedMemPerBlockOptin),
                      std::int64_t(properties.sharedMemPerMultiprocessor));
  if (gpu < 80)
    throw Error(std::string("device cuda: ") + properties.name + " has architecture " + std::to_string(gpu) +
                ", and the kernels need 80 (Ampere) or later; use \"device\": \"cpu\"");
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "asking for the driver's version");
  check(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
  machine_ = std::string(properties.name) + ", " + std::to_string(multiprocessors_) + " multiprocessors, CUDA " +
             version(runtime) + ", driver for CUDA " + version(driver);
  const Built built = what_is_built(properties.name);
  architecture_ = std::min(gpu, built.architecture), warpgroups_ = gpu == 90 && built.warpgroups;
  if (gpu >= 90 && architecture_ < 90)
    machine_ +=
        ", built without architecture " + std::to_string(gpu) + " and so slow (building on this machine mends it)";
  else if (gpu == 90 && !warpgroups_)
    machine_ += ", built without architecture 90a and so slow (CMAKE_CUDA_ARCHITECTURES=90a-real mends it)";
  cluster_ = architecture_ >= 90 ? attention_cluster(shared_memory_) : 1;
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  memory_ = std::make_shared<CudaMemory>(options.device);
  transfers_ = std::make_unique<CudaTransfers>(stream_, dependent_launch(), options.slow_pushes);
  const std::size_t replays = options.most_replays > 0 ? std::size_t(options.most_replays)
                                                       : std::max<std::size_t>(properties.totalGlobalMem >> 25, 256);
  replays_ = std::make_unique<CudaReplays>(stream_, *memory_, replays, options.compare_replays);
  products_ = std::make_unique<CudaProducts>(*this);
}

void CudaBackend::limit_shared_memory(std::int64_t block, std::int64_t multiprocessor) {
  constexpr std::int64_t kReserved = 1 << 10;  // bytes of a block that the system reserves
  shared_memory_ = block, multiprocessor_memory_ = multiprocessor;
  if (const std::int64_t limit = options_.shared_memory_limit; limit > 0)
    shared_memory_ = std::min(block, limit), multiprocessor_memory_ = std::min(multiprocessor, limit + kReserved);
  enter();
}

CudaBackend::~CudaBackend() {
  int ignored = 0;
  if (cudaGetDevice(&ignored) != cudaSuccess || ignored != options_.device) (void)cudaSetDevice(options_.device);
  (void)cudaStreamSynchronize(stream_);
  products_.reset(), replays_.reset(), transfers_.reset();
  (void)cudaStreamDestroy(stream_);
}

std::string CudaBackend::description() const {
  const std::string note = products_->note();
  return machine_ + (options_.invariant ? ", invariant" : ", fast") +
         (replays_->compares() ? ", replays compared" : "") + (note.empty() ? "" : "; " + note);
}

bool CudaBackend::reads_early() {
  if (dependent_launch() && !needs_barrier_) return true;
  passed_barrier();
  return false;
}
void CudaBackend::passed_barrier() { needs_barrier_ = false, unsettled_.clear(); }
bool CudaBackend::settled(const KvLayer& kv) const {
  return std::find(unsettled_.begin(), unsettled_.end(),
                   std::pair<const void*, std::int64_t>(kv.pool.raw(), kv.keys)) == unsettled_.end();
}
void CudaBackend::written(const KvLayer& kv) {
  if (settled(kv)) unsettled_.emplace_back(kv.pool.raw(), kv.keys);
}

// Few sizes, close together for small n, where each row costs time.
int CudaBackend::padded(int n) const {
  const auto up = [n](int to) { return (n + to - 1) / to * to; };
  if (n <= 8) return n;
  if (n <= 16) return up(2);
  if (n <= 64) return up(8);
  if (n <= 256) return up(32);
  if (n <= 512) return up(64);
  if (n <= 4096) return up(256);
  int step = 512;  // eight sizes from one power of two to the next
  while (16 * step <= n) step *= 2;
  return up(step);
}

int cuda_devices() {
  int devices = 0, driver = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess) return devices;
  (void)cudaGetLastError();  // must not meet the next call
  const bool no_driver = cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0;
  if (status == cudaErrorNoDevice || no_driver) return 0;
  refuse(status);
}

std::string cuda_address(int device) {
  char text[32] = {};
  if (cudaDeviceGetPCIBusId(text, int(sizeof text), device) == cudaSuccess) return text;
  (void)cudaGetLastError();  // must not meet the next call
  return "";
}

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

}  // namespace foretoken
