"""`gpu`: where adapters come from."""

from __future__ import annotations

from typing import Any

import js  # type: ignore[import-not-found]

from .bridge import BRIDGE, call, js_object
from .objects import GPUAdapter
from .promise import GPUPromise


class GPU:
    """The entry point, `navigator.gpu`. Use the instance `gpu`."""

    def request_adapter_async(
        self,
        *,
        feature_level: str = "core",
        power_preference: str | None = None,
        force_fallback_adapter: bool = False,
        canvas: Any = None,
    ) -> GPUPromise[GPUAdapter]:
        """Request an adapter. Rejected with a `RuntimeError` where the browser has none."""
        if getattr(js.navigator, "gpu", None) is None:
            raise RuntimeError("this browser has no WebGPU: navigator.gpu is missing")
        options: dict[str, Any] = {
            "featureLevel": feature_level,
            "forceFallbackAdapter": bool(force_fallback_adapter),
        }
        if power_preference:
            options["powerPreference"] = power_preference

        def handler(adapter: Any) -> GPUAdapter:
            if adapter is None:
                raise RuntimeError("navigator.gpu.requestAdapter() gave no adapter")
            return GPUAdapter(adapter)

        return GPUPromise("request_adapter", call(BRIDGE.requestAdapter, js_object(options)), handler)

    def request_adapter_sync(self, **options: Any) -> GPUAdapter:
        return self.request_adapter_async(**options).sync_wait()

    def enumerate_adapters_async(self) -> GPUPromise[list[GPUAdapter]]:
        """The adapters: a browser shows one."""
        return self.request_adapter_async().then(lambda adapter: [adapter])

    def enumerate_adapters_sync(self) -> list[GPUAdapter]:
        return self.enumerate_adapters_async().sync_wait()

    @property
    def wgsl_language_features(self) -> set[str]:
        return set(BRIDGE.list(js.navigator.gpu.wgslLanguageFeatures))


gpu = GPU()
