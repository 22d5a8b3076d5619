// Arrays that the host fills and the device reads. They are laid out one after another in one mirror, so that one copy
// moves them all. The same sequence of arrays of the same sizes has the same addresses every time, which a replay
// requires. This module must not know what the arrays mean.
#pragma once
#include <cstdint>

#include "kernels/backend.h"

namespace foretoken {

class Staging {
 public:
  explicit Staging(Backend& backend) : backend_(backend) {}

  // Discards the arrays of the previous begin() and allocates at least `bytes` bytes (kAlignment more for each array).
  void begin(std::int64_t bytes);
  // An array for the host to fill, uninitialised, and its image on the device.
  struct Array {
    Tensor host, device;
  };
  Array array(Shape shape, DType dtype);
  // Makes all that was filled since begin() visible to the device.
  void push() { backend_.push(mirror_, used_); }
  // The device address of the first image, which identifies the memory: arrays of the same sizes in the same order have
  // the same addresses as long as this is unchanged.
  const void* device_address() const { return mirror_.device.raw(); }

  static constexpr std::int64_t kAlignment = 64;

 private:
  Backend& backend_;
  Mirror mirror_;
  std::int64_t used_ = 0;
};

}  // namespace foretoken
