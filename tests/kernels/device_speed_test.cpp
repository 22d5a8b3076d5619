// How fast a device is that has no measurement of its own, on a clock that runs by what is asked of the device.
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"

namespace foretoken::test {
namespace {

// Copies 10^10 bytes and multiplies 10^12 operations a second, and notes what it copies.
class Clocked final : public ReferenceBackend {
 public:
  void copy(const Tensor& from, Tensor to) override {
    EXPECT_EQ(from.bytes(), to.bytes());
    now_ += double(from.bytes()) / 1e10;
    copied[from.data<char>()] = from.bytes(), written[to.data<char>()] = to.bytes();
  }
  Weight prepare(Weight w) override { return w; }
  Tensor norm_linear(const Tensor& x, const Tensor& gain, float, const Weight& w) override {
    EXPECT_TRUE(x.dim(1) == w.in && gain.dim(0) == w.in && w.values.dtype() == DType::bf16);
    for (const float g : gain.values<float>()) EXPECT_EQ(g, 1);
    for (std::int64_t i = 0; i < x.elements(); ++i)
      if (float(w.values.data<bf16>()[i]) != float(bf16(x.data<float>()[i]))) ++other;
    now_ += 2 * double(x.dim(0)) * double(w.in) * double(w.out) / 1e12;
    return x;
  }
  Mark mark() override {
    Mark m = ReferenceBackend::mark();
    m.host = now_;
    return m;
  }
  std::map<const char*, std::int64_t> copied, written;  // bytes by where they begin
  std::int64_t other = 0;                               // numbers of the weight that are not those of the input

 private:
  double now_ = 0;
};

// Whether the pieces of one size, but for the whole itself, are disjoint and cover the whole.
void expect_partition(const std::map<const char*, std::int64_t>& pieces) {
  const char* next = pieces.begin()->first;
  const std::int64_t bytes = pieces.rbegin()->second;
  for (const auto& [begin, size] : pieces) {
    EXPECT_EQ(begin, next);
    EXPECT_EQ(size, bytes);
    next = begin + bytes;
  }
  EXPECT_EQ(next - pieces.begin()->first, 256 << 20);
}

TEST(DeviceSpeed, IsWhatTheDevicesClockSays) {
  Clocked device;
  const DeviceSpeed speed = device.Backend::measure_speed();
  EXPECT_NEAR(speed.bytes_a_second / 2e10, 1, 1e-9) << "a copied byte is read and written";
  EXPECT_NEAR(speed.operations_a_second / 1e12, 1, 1e-9);
  EXPECT_EQ(device.other, 0);
  expect_partition(device.copied), expect_partition(device.written);
}

}  // namespace
}  // namespace foretoken::test
