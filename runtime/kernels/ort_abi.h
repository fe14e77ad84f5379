// The part of ONNX Runtime's C ABI that xformc uses: types, the table of functions, and the description of an operator.
// Versions of ONNX Runtime only append to the table and to OrtCustomOp, so nothing here ever moves.
// tests/runtime/test_ort_abi.py compares it with ONNX Runtime's own header.
#pragma once

#include <cstddef>
#include <cstdint>

// ONNX Runtime 1.N has the versions 1 to N. This is the first one with all that is declared below: ParallelFor came with
// 17, the last members of OrtCustomOp with 18. A newer one would only shut out the ONNX Runtimes before it.
constexpr uint32_t ORT_VERSION = 18;

struct OrtAllocator;
struct OrtCustomOp;
struct OrtCustomOpDomain;
struct OrtEnv;
struct OrtKernelContext;
struct OrtKernelInfo;
struct OrtMemoryInfo;
struct OrtRunOptions;
struct OrtSession;
struct OrtSessionOptions;
struct OrtShapeInferContext;
struct OrtStatus;  // null is success; the receiver of any other releases it
struct OrtTensorTypeAndShapeInfo;
struct OrtTypeInfo;
struct OrtValue;

enum OrtErrorCode {
  ORT_OK,
  ORT_FAIL,
  ORT_INVALID_ARGUMENT,
  ORT_NO_SUCHFILE,
  ORT_NO_MODEL,
  ORT_ENGINE_ERROR,
  ORT_RUNTIME_EXCEPTION,
  ORT_INVALID_PROTOBUF,
  ORT_MODEL_LOADED,
  ORT_NOT_IMPLEMENTED,
  ORT_INVALID_GRAPH,
  ORT_EP_FAIL,
};

enum OrtLoggingLevel {
  ORT_LOGGING_LEVEL_VERBOSE,
  ORT_LOGGING_LEVEL_INFO,
  ORT_LOGGING_LEVEL_WARNING,
  ORT_LOGGING_LEVEL_ERROR,
  ORT_LOGGING_LEVEL_FATAL,
};

enum ONNXTensorElementDataType {
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_COMPLEX64,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_COMPLEX128,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
};

enum GraphOptimizationLevel {
  ORT_DISABLE_ALL = 0,
  ORT_ENABLE_BASIC = 1,
  ORT_ENABLE_EXTENDED = 2,
  ORT_ENABLE_ALL = 99,
};

enum OrtAllocatorType { OrtDeviceAllocator = 0, OrtArenaAllocator = 1 };

enum OrtMemType { OrtMemTypeCPUInput = -2, OrtMemTypeCPUOutput = -1, OrtMemTypeDefault = 0 };

enum OrtCustomOpInputOutputCharacteristic { INPUT_OUTPUT_REQUIRED, INPUT_OUTPUT_OPTIONAL, INPUT_OUTPUT_VARIADIC };

using OrtLoggingFunction = void (*)(void* param, OrtLoggingLevel severity, const char* category, const char* log_id,
                                    const char* code_location, const char* message);

// The entries first..last of the table, which xformc does not use.
template <size_t first, size_t last>
using Unused = void * [last - first + 1];

// The table of functions, up to the last one that is used.
struct OrtApi {
  OrtStatus* (*CreateStatus)(OrtErrorCode code, const char* message) noexcept;
  OrtErrorCode (*GetErrorCode)(const OrtStatus* status) noexcept;
  const char* (*GetErrorMessage)(const OrtStatus* status) noexcept;
  OrtStatus* (*CreateEnv)(OrtLoggingLevel level, const char* log_id, OrtEnv** out) noexcept;
  OrtStatus* (*CreateEnvWithCustomLogger)(OrtLoggingFunction logger, void* param, OrtLoggingLevel level,
                                          const char* log_id, OrtEnv** out) noexcept;
  Unused<5, 6> unused_5;
  OrtStatus* (*CreateSession)(const OrtEnv* env, const char* path, const OrtSessionOptions* options,
                              OrtSession** out) noexcept;
  Unused<8, 8> unused_8;
  OrtStatus* (*Run)(OrtSession* session, const OrtRunOptions* options, const char* const* input_names,
                    const OrtValue* const* inputs, size_t input_count, const char* const* output_names,
                    size_t output_count, OrtValue** outputs) noexcept;  // an output that is null is created
  OrtStatus* (*CreateSessionOptions)(OrtSessionOptions** out) noexcept;
  Unused<11, 16> unused_11;
  OrtStatus* (*DisableMemPattern)(OrtSessionOptions* options) noexcept;
  Unused<18, 21> unused_18;
  OrtStatus* (*SetSessionLogSeverityLevel)(OrtSessionOptions* options, int level) noexcept;
  OrtStatus* (*SetSessionGraphOptimizationLevel)(OrtSessionOptions* options, GraphOptimizationLevel level) noexcept;
  OrtStatus* (*SetIntraOpNumThreads)(OrtSessionOptions* options, int threads) noexcept;
  OrtStatus* (*SetInterOpNumThreads)(OrtSessionOptions* options, int threads) noexcept;
  OrtStatus* (*CreateCustomOpDomain)(const char* domain, OrtCustomOpDomain** out) noexcept;
  OrtStatus* (*CustomOpDomain_Add)(OrtCustomOpDomain* domain, const OrtCustomOp* op) noexcept;
  OrtStatus* (*AddCustomOpDomain)(OrtSessionOptions* options, OrtCustomOpDomain* domain) noexcept;
  Unused<29, 29> unused_29;
  OrtStatus* (*SessionGetInputCount)(const OrtSession* session, size_t* out) noexcept;
  OrtStatus* (*SessionGetOutputCount)(const OrtSession* session, size_t* out) noexcept;
  OrtStatus* (*SessionGetOverridableInitializerCount)(const OrtSession* session, size_t* out) noexcept;
  OrtStatus* (*SessionGetInputTypeInfo)(const OrtSession* session, size_t index, OrtTypeInfo** out) noexcept;
  OrtStatus* (*SessionGetOutputTypeInfo)(const OrtSession* session, size_t index, OrtTypeInfo** out) noexcept;
  OrtStatus* (*SessionGetOverridableInitializerTypeInfo)(const OrtSession* session, size_t index,
                                                         OrtTypeInfo** out) noexcept;
  // The caller frees a name with the allocator.
  OrtStatus* (*SessionGetInputName)(const OrtSession* session, size_t index, OrtAllocator* allocator,
                                    char** out) noexcept;
  OrtStatus* (*SessionGetOutputName)(const OrtSession* session, size_t index, OrtAllocator* allocator,
                                     char** out) noexcept;
  OrtStatus* (*SessionGetOverridableInitializerName)(const OrtSession* session, size_t index, OrtAllocator* allocator,
                                                     char** out) noexcept;
  OrtStatus* (*CreateRunOptions)(OrtRunOptions** out) noexcept;
  Unused<40, 40> unused_40;
  OrtStatus* (*RunOptionsSetRunLogSeverityLevel)(OrtRunOptions* options, int level) noexcept;
  Unused<42, 45> unused_42;
  OrtStatus* (*RunOptionsSetTerminate)(OrtRunOptions* options) noexcept;
  OrtStatus* (*RunOptionsUnsetTerminate)(OrtRunOptions* options) noexcept;
  Unused<48, 48> unused_48;
  OrtStatus* (*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo* info, void* data, size_t bytes,
                                               const int64_t* shape, size_t rank, ONNXTensorElementDataType type,
                                               OrtValue** out) noexcept;  // the data is the caller's
  OrtStatus* (*IsTensor)(const OrtValue* value, int* out) noexcept;
  OrtStatus* (*GetTensorMutableData)(OrtValue* value, void** out) noexcept;
  Unused<52, 54> unused_52;
  OrtStatus* (*CastTypeInfoToTensorInfo)(const OrtTypeInfo* info, const OrtTensorTypeAndShapeInfo** out) noexcept;
  Unused<56, 59> unused_56;
  OrtStatus* (*GetTensorElementType)(const OrtTensorTypeAndShapeInfo* info, ONNXTensorElementDataType* out) noexcept;
  OrtStatus* (*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo* info, size_t* out) noexcept;
  OrtStatus* (*GetDimensions)(const OrtTensorTypeAndShapeInfo* info, int64_t* out, size_t count) noexcept;
  Unused<63, 63> unused_63;
  OrtStatus* (*GetTensorShapeElementCount)(const OrtTensorTypeAndShapeInfo* info, size_t* out) noexcept;
  OrtStatus* (*GetTensorTypeAndShape)(const OrtValue* value, OrtTensorTypeAndShapeInfo** out) noexcept;
  Unused<66, 68> unused_66;
  OrtStatus* (*CreateCpuMemoryInfo)(OrtAllocatorType allocator, OrtMemType type, OrtMemoryInfo** out) noexcept;
  Unused<70, 75> unused_70;
  OrtStatus* (*AllocatorFree)(OrtAllocator* allocator, void* memory) noexcept;
  Unused<77, 77> unused_77;
  OrtStatus* (*GetAllocatorWithDefaultOptions)(OrtAllocator** out) noexcept;  // the allocator is not the caller's
  Unused<79, 84> unused_79;
  OrtStatus* (*KernelInfoGetAttribute_float)(const OrtKernelInfo* info, const char* name, float* out) noexcept;
  OrtStatus* (*KernelInfoGetAttribute_int64)(const OrtKernelInfo* info, const char* name, int64_t* out) noexcept;
  // With out = null, `size` becomes the number of characters and the final null, or of elements of the array below.
  OrtStatus* (*KernelInfoGetAttribute_string)(const OrtKernelInfo* info, const char* name, char* out,
                                              size_t* size) noexcept;
  OrtStatus* (*KernelContext_GetInputCount)(const OrtKernelContext* context, size_t* out) noexcept;
  OrtStatus* (*KernelContext_GetOutputCount)(const OrtKernelContext* context, size_t* out) noexcept;
  OrtStatus* (*KernelContext_GetInput)(const OrtKernelContext* context, size_t index, const OrtValue** out) noexcept;
  OrtStatus* (*KernelContext_GetOutput)(OrtKernelContext* context, size_t index, const int64_t* shape, size_t rank,
                                        OrtValue** out) noexcept;
  void (*ReleaseEnv)(OrtEnv* env);
  void (*ReleaseStatus)(OrtStatus* status);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo* info);
  void (*ReleaseSession)(OrtSession* session);
  void (*ReleaseValue)(OrtValue* value);
  void (*ReleaseRunOptions)(OrtRunOptions* options);
  void (*ReleaseTypeInfo)(OrtTypeInfo* info);
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo* info);
  void (*ReleaseSessionOptions)(OrtSessionOptions* options);
  void (*ReleaseCustomOpDomain)(OrtCustomOpDomain* domain);
  Unused<102, 123> unused_102;
  OrtStatus* (*AddFreeDimensionOverrideByName)(OrtSessionOptions* options, const char* name, int64_t size) noexcept;
  Unused<125, 129> unused_125;
  OrtStatus* (*AddSessionConfigEntry)(OrtSessionOptions* options, const char* key, const char* value) noexcept;
  Unused<131, 162> unused_131;
  OrtStatus* (*KernelInfoGetAttributeArray_int64)(const OrtKernelInfo* info, const char* name, int64_t* out,
                                                  size_t* size) noexcept;
  Unused<164, 229> unused_164;
  OrtStatus* (*KernelInfo_GetInputCount)(const OrtKernelInfo* info, size_t* out) noexcept;
  Unused<231, 248> unused_231;
  OrtStatus* (*KernelInfoGetConstantInput_tensor)(const OrtKernelInfo* info, size_t index, int* is_constant,
                                                  const OrtValue** out) noexcept;
  Unused<250, 273> unused_250;
  OrtStatus* (*KernelContext_ParallelFor)(const OrtKernelContext* context, void (*work)(void* data, size_t i),
                                          size_t count, size_t batches, void* data) noexcept;
};

// What the library of ONNX Runtime exports as OrtGetApiBase, and gives to RegisterCustomOps.
struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version) noexcept;  // null if it is newer than the library
  const char* (*GetVersionString)() noexcept;
};

// An operator, of version ORT_VERSION. Members may be null where this says so.
struct OrtCustomOp {
  uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info);  // null: CreateKernelV2
  const char* (*GetName)(const OrtCustomOp* op);
  const char* (*GetExecutionProviderType)(const OrtCustomOp* op);  // returns null for the CPU
  ONNXTensorElementDataType (*GetInputType)(const OrtCustomOp* op, size_t index);
  size_t (*GetInputTypeCount)(const OrtCustomOp* op);
  ONNXTensorElementDataType (*GetOutputType)(const OrtCustomOp* op, size_t index);
  size_t (*GetOutputTypeCount)(const OrtCustomOp* op);
  void (*KernelCompute)(void* kernel, OrtKernelContext* context);  // null: KernelComputeV2
  void (*KernelDestroy)(void* kernel);
  OrtCustomOpInputOutputCharacteristic (*GetInputCharacteristic)(const OrtCustomOp* op, size_t index);
  OrtCustomOpInputOutputCharacteristic (*GetOutputCharacteristic)(const OrtCustomOp* op, size_t index);
  OrtMemType (*GetInputMemoryType)(const OrtCustomOp* op, size_t index);
  int (*GetVariadicInputMinArity)(const OrtCustomOp* op);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp* op);  // whether all of them have one type
  int (*GetVariadicOutputMinArity)(const OrtCustomOp* op);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp* op);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info, void** kernel);
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext* context);
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp* op, OrtShapeInferContext* context);  // may be null
  int (*GetStartVersion)(const OrtCustomOp* op);  // the versions of the domain, both included
  int (*GetEndVersion)(const OrtCustomOp* op);
  size_t (*GetMayInplace)(int** inputs, int** outputs);  // may be null, as all that follow
  void (*ReleaseMayInplace)(int* inputs, int* outputs);
  size_t (*GetAliasMap)(int** inputs, int** outputs);
  void (*ReleaseAliasMap)(int* inputs, int* outputs);
};
